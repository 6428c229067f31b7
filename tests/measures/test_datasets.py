"""Planted faults in a set of pairs are found, and clean pairs are left alone.

The pairs are made of words of which some are liked: a text's worth is how many of those it holds,
and people choose by it, so a text model can learn the choice and the truth is known.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from apps.agreement.reports.reading import estimate_said
from measures.agreement import Level, krippendorff_alpha, percent_agreement, reading
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
from measures.duplicates import normalise
from measures.estimate import Estimate, Statistic
from measures.splits import (
    assign_splits,
    effective_sample_size,
    fold_of,
    overlap_containment,
    split_of,
    unit_hash,
)
from measures.textmodel import fit, folds_of, out_of_fold, tfidf
from tests.measures.crowds import counts_of, crowd

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
    assert found.undefined == "one_time"
    assert not found.fell


def test_too_few_pairs_say_so():
    x = sparse.csr_matrix(np.eye(20))
    found = time_split(x, np.arange(20), ["g"] * 20, np.arange(20), np.arange(20, 40))
    assert found.undefined.startswith("few_pairs")


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


# What an agreement figure is said to mean.


def estimate(statistic, value, low, high, n_items=500, **rest) -> Estimate:
    return Estimate(
        statistic=statistic,
        value=value,
        low=low,
        high=high,
        n_items=n_items,
        n_votes=5 * n_items,
        **rest,
    )


PERCENT, ALPHA = Statistic.PERCENT_AGREEMENT, Statistic.KRIPPENDORFF_ALPHA


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (estimate(PERCENT, 0.55, 0.52, 0.59), Level.BAD),
        (estimate(PERCENT, 0.58, 0.55, 0.60), Level.UNSURE),
        (estimate(PERCENT, 0.58, 0.55, 0.62), Level.UNSURE),
        (estimate(PERCENT, 0.65, 0.60, 0.70), Level.NO_ALARM),
        (estimate(PERCENT, 0.50, 0.40, 0.59, n_items=29), Level.TOO_FEW),
        (estimate(ALPHA, 0.02, -0.05, 0.09), Level.CRITICAL),
        (estimate(ALPHA, 0.02, 0.00, 0.09), Level.CRITICAL),
        (estimate(ALPHA, -0.2, -0.3, -0.1), Level.CRITICAL),
        (estimate(ALPHA, 0.15, -0.1, 0.4), Level.TOO_FEW),
        (estimate(ALPHA, 0.02, -0.05, 0.09, n_items=20), Level.TOO_FEW),
        (estimate(ALPHA, 0.30, 0.25, 0.35), Level.NO_ALARM),
        (estimate(ALPHA, 0.30, None, None, no_interval="because"), Level.UNSURE),
        (estimate(ALPHA, None, None, None, undefined="because"), Level.UNDEFINED),
    ],
)
def test_the_level_follows_the_interval_and_not_the_value(given, level):
    assert reading(given) is level


def test_preferences_of_a_healthy_project_raise_no_alarm_far_under_the_textbook_mark():
    votes = crowd(1, 800, 5, 0.85)  # agreement 0.745, as InstructGPT's
    alpha = krippendorff_alpha(votes)
    assert alpha.high < 0.667
    assert reading(alpha) is Level.NO_ALARM
    assert reading(percent_agreement(votes)) is Level.NO_ALARM


def test_random_votes_raise_the_alarm_in_both_statistics():
    votes = crowd(2, 600, 5, 0.5)
    assert reading(krippendorff_alpha(votes)) is Level.CRITICAL
    assert reading(percent_agreement(votes)) is Level.BAD


def test_a_few_random_votes_are_too_few_to_say():
    for n_items in (3, 20):
        votes = crowd(3, n_items, 3, 0.5)
        for statistic in (percent_agreement, krippendorff_alpha):
            assert reading(statistic(votes)) is Level.TOO_FEW


def test_real_argument_pairs_are_bad_by_percent_and_better_than_chance():
    assert reading(percent_agreement(counts_of("ukp"))) is Level.BAD
    assert reading(krippendorff_alpha(counts_of("ukp"))) is Level.NO_ALARM


def test_sentences_carry_the_figures_and_read_as_text():
    said = estimate_said(estimate(PERCENT, 0.5639, 0.5517, 0.5758, n_items=2200))
    assert "56.4 % (95 % interval 55.2 % to 57.6 %; 2200 " in said
    critical = estimate_said(estimate(ALPHA, 0.02, -0.05, 0.09))
    assert "0.02 (95 % interval −0.05 to 0.09; 500 comparisons)" in critical
    undefined = estimate_said(estimate(ALPHA, None, None, None, undefined="no_two_votes"))
    assert "two votes" in undefined
    for level in (estimate(ALPHA, 0.3, 0.2, 0.4), estimate(ALPHA, 0.15, -0.1, 0.4)):
        assert "nan" not in estimate_said(level).lower()
        assert estimate_said(level).endswith(".")


# Splits that never move, hold-outs, weights and overlap.


SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
PINNED_SPLITS = [
    "train",
    "train",
    "test",
    "test",
    "dev",
    "test",
    "test",
    "train",
    "test",
    "train",
    "train",
    "train",
]
PINNED_HELD_OUT = [11, 20, 23, 27, 36]
DIGEST_START = "22013da7bd368c11"
KEYS = [f"debate {i}" for i in range(4000)]


def test_assignments_are_pinned_so_that_no_release_ever_moves_them():
    """Changing one of these moves rows from test to train in every project: do not."""
    assert [split_of(f"debate {i}", SHARES, "salt") for i in range(12)] == PINNED_SPLITS
    assert [i for i in range(40) if fold_of(f"ana-{i}", 0.2, "salt")] == PINNED_HELD_OUT


def test_the_hash_is_the_first_53_bits_of_a_sha256():
    # printf '4:salt:debate' | sha256sum, first 16 hex digits, worked out outside Python.
    assert unit_hash("debate", "salt") == int(DIGEST_START, 16) // 2**11 / 2**53


def test_another_interpreter_with_another_hash_seed_assigns_the_same():
    script = (
        "from measures.splits import split_of\n"
        "shares = {'train': 0.7, 'dev': 0.1, 'test': 0.2}\n"
        "print(' '.join(split_of(f'debate {i}', shares, 's') for i in range(50)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "4711"},
    )
    assert ran.stdout.split() == [split_of(key, SHARES, "s") for key in KEYS[:50]]


def test_new_groups_move_no_old_one():
    before = assign_splits(KEYS[:100], SHARES, "salt").splits
    after = assign_splits(KEYS[::-1], SHARES, "salt").splits[::-1]
    assert after[:100] == before


def test_rows_of_one_group_stay_together():
    splits = assign_splits(KEYS[:20] * 5, SHARES, "salt").splits
    assert splits == splits[:20] * 5


def test_shares_come_out_about_right_over_many_groups():
    assignment = assign_splits(KEYS, SHARES, "salt")
    for split, share in SHARES.items():
        spread = math.sqrt(share * (1 - share) * len(KEYS))
        assert assignment.n_groups[split] == pytest.approx(share * len(KEYS), abs=4 * spread)
    assert assignment.few == ()


def test_another_salt_deals_again():
    one = assign_splits(KEYS, SHARES, "salt").splits
    other = assign_splits(KEYS, SHARES, "pepper").splits
    same = sum(a == b for a, b in zip(one, other, strict=True)) / len(KEYS)
    assert same == pytest.approx(0.7**2 + 0.1**2 + 0.2**2, abs=0.04)


def test_salt_and_key_do_not_run_into_each_other():
    assert unit_hash("c", "ab") != unit_hash("bc", "a")


def test_a_split_of_few_groups_says_so():
    assignment = assign_splits(KEYS[:26], SHARES | {"test": 0.2}, "salt")
    assert sum(assignment.n_groups.values()) == 26
    assert set(assignment.few) == {split for split, n in assignment.n_groups.items() if n < 10}
    assert "dev" in assignment.few


def test_a_split_without_a_share_gets_nothing_and_no_warning():
    shares = {"train": 0.5, "none": 0.0, "test": 0.5, "last": 0.0}
    assignment = assign_splits(KEYS, shares, "salt")
    assert assignment.n_groups["none"] == assignment.n_groups["last"] == 0
    assert assignment.few == ()


@given(st.text(), st.text())
def test_every_text_has_a_place(key, salt):
    assert 0 <= unit_hash(key, salt) < 1
    assert split_of(key, SHARES, salt) in SHARES
    assert split_of(key, {"all": 1.0}, salt) == "all"


def test_even_a_broken_surrogate_has_a_place():
    assert 0 <= unit_hash("\ud800", "salt") < 1


@pytest.mark.parametrize(
    "shares", [{}, {"train": 0.7, "test": 0.2}, {"train": 1.2, "test": -0.2}, {"train": 80.0}]
)
def test_shares_that_do_not_sum_to_one_are_refused(shares):
    with pytest.raises(ValueError, match="shares must"):
        split_of("debate", shares, "salt")


def test_a_fifth_of_annotators_is_held_out_independently_of_the_splits():
    held = [fold_of(key, 0.2, "salt") for key in KEYS]
    assert sum(held) == pytest.approx(800, abs=4 * math.sqrt(4000 * 0.16))
    tested = [split_of(key, SHARES, "salt") == "test" for key in KEYS]
    both = sum(a and b for a, b in zip(held, tested, strict=True))
    assert both == pytest.approx(160, abs=4 * math.sqrt(160))


def test_holding_out_more_annotators_releases_nobody():
    for key in KEYS[:500]:
        held = [fold_of(key, share, "salt") for share in (0, 0.1, 0.2, 0.5, 1)]
        assert held == sorted(held)
        assert held[0] is False
        assert held[-1] is True
    with pytest.raises(ValueError, match="share must lie"):
        fold_of("ana", 20, "salt")


def test_effective_sample_size_by_hand():
    assert effective_sample_size([2, 2, 2]).value == pytest.approx(3)
    assert effective_sample_size([3, 1]).value == pytest.approx(16 / 10)
    assert effective_sample_size([1, 0, 0]).value == pytest.approx(1)


@given(st.lists(st.floats(0, 1e-200), min_size=1, max_size=20))
def test_effective_sample_size_lies_between_one_and_n_even_for_tiny_weights(weights):
    result = effective_sample_size(weights)
    if max(weights) == 0:
        assert result.undefined == "no_weight"
    else:
        assert 1 - 1e-9 <= result.value <= len(weights) + 1e-9


@pytest.mark.parametrize("weights", [[1, -1], [math.nan], [math.inf, 1]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ValueError, match="weights must"):
        effective_sample_size(weights)


def test_no_weights_have_no_size():
    assert effective_sample_size([]).undefined == "no_weight"


def test_overlap_counts_distinct_rl_prompts_seen_in_sft():
    overlap = overlap_containment(
        ["Write a poem.", "Sum 2+2", "Sum 2+2", "Other"],
        ["write  a POEM.", "Write a poem.", "ｓｕｍ 2+2", "New", "Newer"],
    )
    assert (overlap.n_sft, overlap.n_rl, overlap.n_both) == (3, 4, 2)
    assert overlap.containment == 0.5


def test_overlap_is_undefined_without_rl_prompts_and_zero_without_sft_ones():
    assert overlap_containment(["a"], []).undefined
    assert overlap_containment(["a"], []).containment is None
    assert overlap_containment([], ["a"]).containment == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I Love\u00a0You", "i love you"),
        ("ﬁne", "FINE"),
        ("STRASSE", "straße"),
        ("cafe\u0301", "CAFÉ"),
        ("  two\n\tlines ", "two lines"),
        ("Ⅷ", "viii"),
        ("🄰 ℡", "a tel"),  # capitals only after the compatibility form: folded a second time
    ],
)
def test_spellings_of_the_same_text_have_one_normal_form(one, other):
    assert normalise(one) == normalise(other)


def test_different_words_and_marks_stay_different():
    assert normalise("yes!") != normalise("yes")
    assert normalise("resume") != normalise("résumé")


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once
