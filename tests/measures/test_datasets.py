"""Planted faults in a set of pairs are found, and clean pairs are left alone.

The pairs are made of words of which some are liked: a text's worth is how many of those it holds,
and people choose by it, so a text model can learn the choice and the truth is known.
"""

import numpy as np
import pytest
from scipy import sparse

from measures.corpus import Corpus
from measures.datasets.breadth import (
    blind_accuracy,
    breadth,
    canaries,
    common_sample,
    effective_number,
    label_log_odds,
    leaks,
    rarefied,
    sure_contradictions,
)
from measures.datasets.drift import learning_curve, pair_share, recency_weighting, time_split
from measures.textmodel import fit, folds_of, out_of_fold, tfidf

N = 1_000
Differences = sparse.csr_matrix


def pairs_made(rng: np.random.Generator, n: int = N, sharpness: float = 2.0) -> Differences:
    """(n, features) chosen − rejected."""
    words = [" ".join(f"w{k}" for k in rng.integers(0, 60, size=25)) for _ in range(2 * n)]
    liked = np.array([sum(int(w[1:]) < 12 for w in text.split()) for text in words])
    one, other = np.arange(n), np.arange(n, 2 * n)
    worth = sharpness * (liked[one] - liked[other])
    wins = rng.random(n) < 1 / (1 + np.exp(-worth))
    corpus = Corpus(words)
    x = tfidf(corpus.counts(least_texts=3), corpus.lengths)
    sign = np.where(wins, 1.0, -1.0)
    return flipped((x[one] - x[other]).tocsr(), sign)


def flipped(x: Differences, sign: np.ndarray) -> Differences:
    return sparse.diags_array(sign.astype(np.float64), format="csr") @ x


@pytest.fixture(scope="module")
def pairs() -> Differences:
    return pairs_made(np.random.default_rng(1))


ONE, OTHER = np.arange(N), np.arange(N, 2 * N)
ALL = np.ones(N, dtype=bool)


def test_the_text_model_finds_the_optimum_of_its_loss(pairs: Differences):
    w = fit(pairs, ridge=3.0)
    # At the optimum the gradient vanishes: ridge · w equals the pull of the rows.
    pull = pairs.T @ (1 / (1 + np.exp(pairs @ w)))
    assert 3 * w == pytest.approx(pull, abs=0.05)


def test_the_text_model_learns_what_people_like(pairs: Differences):
    margin = out_of_fold(pairs, folds_of(range(N)))
    assert (margin > 0).mean() > 0.8


def test_folds_keep_units_whole_and_are_about_even():
    units = [f"debate {n % 37}" for n in range(1_000)]
    fold = folds_of(units)
    assert all(len(set(fold[k::37])) == 1 for k in range(37))
    assert np.bincount(fold).min() > 150


# --- leakage -------------------------------------------------------------------------------------


def circumstances(rng: np.random.Generator, n: int) -> np.ndarray:
    """Which was stored first, three sources, and the topic times the order: nothing tells."""
    order = rng.choice([-1.0, 1.0], n)
    source = rng.integers(-1, 2, size=(n, 3))
    topic = rng.integers(0, 8, n)[:, None] == np.arange(8)
    return np.column_stack([order, source, order[:, None] * topic])


def test_a_source_that_gives_the_chosen_away_is_caught():
    rng = np.random.default_rng(2)
    blind = circumstances(rng, N)
    tagged = rng.random(N) < 0.3
    blind[:, 1] = np.where(tagged, 1, blind[:, 1])
    found = blind_accuracy(blind, folds_of(range(N), folds=10), ONE, OTHER)
    assert leaks(found)
    assert found.value > 0.6


def test_winners_that_always_stand_first_are_caught():
    found = blind_accuracy(np.ones((N, 1)), folds_of(range(N), folds=10), ONE, OTHER)
    assert leaks(found)
    assert found.value == 1


def test_clean_circumstances_raise_the_alarm_about_as_rarely_as_stated():
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(60):
        blind = circumstances(rng, 400)
        fold = folds_of(rng.integers(0, 40, 400), folds=10)
        alarms += leaks(blind_accuracy(blind, fold, np.arange(400), np.arange(400, 800)))
    assert alarms <= 5  # 2.5 % of 60 is 1.5; six or more would come by chance once in 200


# --- swapped labels ------------------------------------------------------------------------------


def test_one_label_in_ten_swapped_shows_where_the_text_model_is_sure(pairs: Differences):
    rng = np.random.default_rng(4)
    sign = np.where(rng.random(N) < 0.1, -1, 1)
    fold = folds_of(range(N))
    clean = sure_contradictions(out_of_fold(pairs, fold), ALL, ONE, OTHER)
    spoilt = sure_contradictions(out_of_fold(flipped(pairs, sign), fold), ALL, ONE, OTHER)
    assert clean.high < 0.05
    assert spoilt.low > 0.04
    assert spoilt.low < 0.1 < spoilt.high


def test_labels_flipped_on_purpose_are_found_far_more_often_than_by_lot(pairs: Differences):
    found = canaries(pairs, folds_of(range(N)))
    assert found.n == 50
    assert found.found > 0.4


def test_flips_cannot_be_found_where_words_say_nothing():
    blank = pairs_made(np.random.default_rng(5), sharpness=0.0)
    assert canaries(blank, folds_of(range(N))).found < 0.3


def test_all_labels_swapped_look_clean_to_a_text_model_and_wrong_to_gold(pairs: Differences):
    everything = flipped(pairs, np.full(N, -1))
    margin = out_of_fold(everything, folds_of(range(N)))
    assert (margin > 0).mean() > 0.8
    right = pair_share(np.zeros(40), ONE[:40], OTHER[:40])  # 40 gold pairs, all contradicted
    assert right.value == 0
    assert right.high < 0.5


def test_a_label_that_votes_and_words_contradict_is_the_most_suspicious():
    score = label_log_odds([-2.0, -2.0, 3.0], [0.6, 1.0, 0.6], [5, 5, 5])
    assert score.argsort().tolist() == [0, 1, 2]
    assert score[0] == pytest.approx(-2 + np.log(4 / 3))


# --- time ----------------------------------------------------------------------------------------


def test_a_preference_that_flips_half_way_is_seen(pairs: Differences):
    at = np.random.default_rng(6).random(N)
    found = time_split(flipped(pairs, np.where(at > 0.5, -1, 1)), at, ["all"] * N, ONE, OTHER)
    assert found.fell
    assert found.drop.value > 0.2


def test_a_steady_preference_is_rarely_called_fallen():
    rng = np.random.default_rng(7)
    x = pairs_made(rng, n=400)
    one, other = np.arange(400), np.arange(400, 800)
    groups = [f"g{k % 20}" for k in range(400)]
    fell = sum(time_split(x, rng.random(400), groups, one, other).fell for _ in range(12))
    assert fell <= 2


def test_weighting_recent_pairs_helps_after_a_change_and_not_without_one(pairs: Differences):
    at = np.random.default_rng(9).random(N)
    changed = flipped(pairs, np.where(at > 0.5, -1, 1))
    assert recency_weighting(changed, at, ONE, OTHER).gain.low > 0.05
    steady = recency_weighting(pairs, at, ONE, OTHER)
    assert steady.gain.value < 0.02
    assert recency_weighting(pairs, np.zeros(N), ONE, OTHER) is None


def test_a_row_of_weight_two_counts_as_two_rows(pairs: Differences):
    twice = sparse.vstack([pairs[:300], pairs[:300]], format="csr")
    assert fit(pairs[:300], weights=np.full(300, 2.0)) == pytest.approx(fit(twice), abs=1e-3)


def test_votes_of_one_moment_cannot_be_split_by_time(pairs: Differences):
    found = time_split(pairs, np.zeros(N), ["all"] * N, ONE, OTHER)
    assert found.drop is None
    assert "same time" in found.undefined
    assert not found.fell


def test_too_few_pairs_say_so():
    x = sparse.csr_matrix(np.eye(20))
    found = time_split(x, np.arange(20), ["g"] * 20, np.arange(20), np.arange(20, 40))
    assert "too few pairs" in found.undefined


# --- size ----------------------------------------------------------------------------------------


def test_a_learning_curve_rises_while_there_is_something_to_learn(pairs: Differences):
    curve = learning_curve(pairs, range(N), ONE, OTHER)
    assert curve.pairs == (100, 200, 400, 800)
    assert curve.accuracy[0].value < curve.accuracy[-1].value - 0.03
    assert curve.doubling.value == pytest.approx(curve.accuracy[3].value - curve.accuracy[2].value)


# --- breadth -------------------------------------------------------------------------------------


def test_an_effective_number_is_the_number_of_kinds_when_all_are_equally_frequent():
    assert effective_number([7, 7, 7, 7]).value == pytest.approx(4)
    assert effective_number([]).undefined


def test_rarefying_to_one_draw_leaves_one_kind_and_to_all_leaves_all():
    assert rarefied([5, 3, 2], 1).value == pytest.approx(1)
    assert rarefied([5, 3, 2], 10).value == pytest.approx(3)
    assert rarefied([5, 3, 2], 11).undefined
    # Two draws from {a, a, b}: aa 1/3, ab 2/3, so 1/3 · 1 + 2/3 · 2.
    assert rarefied([2, 1], 2).value == pytest.approx(5 / 3)


def test_focused_prompts_are_narrower_than_varied_ones_in_every_figure():
    rng = np.random.default_rng(8)
    varied = [" ".join(f"v{k}" for k in rng.integers(0, 2_000, 12)) for _ in range(300)]
    focused = ["sum the numbers " + " ".join(f"{k}" for k in rng.integers(0, 20, 9))] * 3
    focused += ["sum the numbers " + " ".join(f"{k}" for k in rng.integers(0, 20, 9))] * 200
    sample = common_sample(varied, focused)
    wide = breadth(varied, [f"t{k % 9}" for k in range(300)], sample=sample)
    narrow = breadth(focused, ["sums"] * len(focused), sample=sample)
    assert wide.topics.value > narrow.topics.value == pytest.approx(1)
    assert wide.vocabulary.value > narrow.vocabulary.value
    assert wide.new_pairs.value > narrow.new_pairs.value
    assert wide.distance.value > 0.95 > narrow.distance.value


def test_shares_stay_between_nothing_and_everything():
    found = pair_share([1.0] * 49 + [0.0], np.arange(50), np.arange(50, 100))
    assert found.high == 1
