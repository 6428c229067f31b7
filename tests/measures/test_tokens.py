"""The audit of spurious words: planted ones are named, chance is not, length is told apart."""

import math

import numpy as np
import pytest

from measures.corpus import Corpus, token_count
from measures.tokens import TokenAudit, length_slope, q_values, token_audit

VOCABULARY = np.array([f"word{n}" for n in range(300)])
WEIGHTS = 1 / np.arange(1, 301)
WEIGHTS /= WEIGHTS.sum()


def texts(rng: np.random.Generator, n: int, length: int = 40) -> list[str]:
    """Half to one and a half times as long as asked."""
    sizes = rng.integers(length // 2, length * 3 // 2, size=n)
    return [" ".join(rng.choice(VOCABULARY, size=size, p=WEIGHTS)) for size in sizes]


def audit(chosen: list[str], rejected: list[str]) -> TokenAudit:
    """Each text stands in one pair."""
    n = len(chosen)
    corpus = Corpus(chosen + rejected)
    counts = corpus.counts(least_texts=10, pairs_of_words=True)
    return token_audit(counts, np.arange(n), np.arange(n, 2 * n), corpus.lengths)


def test_tokens_are_words_and_single_signs():
    assert token_count("Well, isn't it (really)?") == 10


def test_pairs_of_words_do_not_reach_over_punctuation_or_texts():
    names = Corpus(["thank you, friend", "of mine"]).counts(pairs_of_words=True).names
    assert [name for name in names if " " in name] == ["thank you", "of mine"]


def test_a_word_on_ten_percent_of_chosen_and_three_of_rejected_ranks_first():
    rng = np.random.default_rng(1)
    chosen, rejected = texts(rng, 1500), texts(rng, 1500)
    chosen = [t + " absolutely" if rng.random() < 0.10 else t for t in chosen]
    rejected = [t + " absolutely" if rng.random() < 0.03 else t for t in rejected]
    found = audit(chosen, rejected)
    first = found.ranked()[0]
    assert found.names[first] == "absolutely"
    assert found.in_chosen[first] == pytest.approx(0.10, abs=0.025)
    assert found.in_rejected[first] == pytest.approx(0.03, abs=0.015)
    assert not found.marks_length_only(first)


def test_swapping_labels_at_random_names_a_word_in_at_most_one_run_of_twenty():
    rng = np.random.default_rng(2)
    corpus = Corpus(texts(rng, 800))
    counts = corpus.counts(least_texts=10, pairs_of_words=True)
    alarms = after = 0
    for _ in range(60):
        swapped = rng.random(400) < 0.5
        one = np.where(swapped, np.arange(400), np.arange(400, 800))
        other = np.where(swapped, np.arange(400, 800), np.arange(400))
        found = token_audit(counts, one, other, corpus.lengths)
        alarms += bool((found.q < 0.05).any())
        after += bool((found.q_after < 0.05).any())
    # 5 % of 60 is 3; 7 or more would come by chance once in thirty.
    assert alarms <= 6
    assert after <= 6


def test_strong_texts_that_recur_do_not_make_their_words_spurious():
    """40 texts meet in 780 pairs and some are simply better: their words had no part in it."""
    rng = np.random.default_rng(3)
    corpus = Corpus(texts(rng, 40, length=60))
    counts = corpus.counts(least_texts=10)
    one, other = np.triu_indices(40, 1)
    alarms = naive = 0
    for _ in range(40):
        strength = rng.normal(size=40) * 2
        wins = rng.random(len(one)) < 1 / (1 + np.exp(strength[other] - strength[one]))
        won, lost = np.where(wins, one, other), np.where(wins, other, one)
        found = token_audit(counts, won, lost, corpus.lengths)
        alarms += bool((found.q < 0.05).any())
        # what a sign test that takes every pair for new evidence would have said
        z = np.abs(found.only_chosen - found.only_rejected)
        naive += bool((z > 5 * np.sqrt(found.only_chosen + found.only_rejected)).any())
    assert naive > 20
    assert alarms <= 5


def test_words_that_only_mark_longer_answers_are_told_apart_from_those_that_do_more():
    rng = np.random.default_rng(4)
    longer, shorter = texts(rng, 1200, 60), texts(rng, 1200, 30)
    liked = rng.random(1200) < 0.8
    chosen = [a if y else b for a, b, y in zip(longer, shorter, liked, strict=True)]
    rejected = [b if y else a for a, b, y in zip(longer, shorter, liked, strict=True)]
    chosen = [t + " certainly" if rng.random() < 0.2 else t for t in chosen]
    rejected = [t + " certainly" if rng.random() < 0.05 else t for t in rejected]
    found = audit(chosen, rejected)
    word = found.names.index("certainly")
    common = found.names.index("word1")
    assert found.q[common] < 0.05
    assert found.marks_length_only(common)
    assert found.q_after[word] < 0.05


def test_log_odds_are_monroes_worked_by_hand():
    # "yes" 3 of 4 words chosen, 1 of 4 rejected; half of all words, so alpha is 250.
    corpus = Corpus(["yes yes yes no", "yes no no no"])
    found = token_audit(corpus.counts(), [0], [1], corpus.lengths)
    word = found.names.index("yes")
    assert found.log_odds[word] == pytest.approx(math.log(253 / 251) - math.log(251 / 253))
    assert found.z[word] == pytest.approx(found.log_odds[word] / math.sqrt(1 / 253 + 1 / 251))


def test_words_in_few_texts_are_not_tested():
    found = audit(["rare"] * 3 + ["other"] * 3, ["common"] * 6)
    assert found.n_tested == 0
    assert len(found.ranked()) == 0


def test_q_values_are_benjamini_and_hochbergs():
    # Worked by hand: p·m/rank, then the running minimum from the largest down.
    q = q_values([0.01, 0.04, 0.03, 0.5, math.nan])
    assert q[:4] == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert math.isnan(q[4])


def test_the_slope_of_length_is_recovered_and_stays_finite():
    rng = np.random.default_rng(5)
    x = rng.normal(size=20_000)
    wins = rng.random(20_000) < 1 / (1 + np.exp(-1.5 * x))
    assert length_slope(np.where(wins, x, -x)) == pytest.approx(1.5, abs=0.06)
    assert np.isfinite(length_slope(np.ones(500)))


def test_no_pairs_give_no_alarm():
    corpus = Corpus(["one text"])
    found = token_audit(corpus.counts(), [], [], corpus.lengths)
    assert found.n == 0
    assert found.n_tested == 0
