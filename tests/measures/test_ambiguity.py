"""Finding the prompts that people disagree about."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.ambiguity import (
    FALLBACK_WEIGHT,
    HEAVIEST_WEIGHT,
    disagreement_evidence,
    prompt_ambiguity,
)


@given(st.lists(st.sampled_from("abtx"), min_size=2, max_size=9))
def test_the_share_is_that_of_pairs_of_votes_that_differ(votes):
    pairs = list(itertools.combinations(votes, 2))
    share = sum(one != other for one, other in pairs) / len(pairs)
    differing, evidence = disagreement_evidence([[votes.count(c) for c in "abtx"]])
    assert evidence[0] == len(votes) - 1
    assert differing[0] == pytest.approx(share * evidence[0])


def test_a_single_vote_is_no_evidence():
    differing, evidence = disagreement_evidence([[1, 0], [0, 0]])
    assert (differing.tolist(), evidence.tolist()) == ([0, 0], [0, 0])


def test_a_prompt_without_evidence_stands_where_the_project_does():
    found = prompt_ambiguity([2.0, 0.0], [4.0, 0.0])
    assert np.isnan(found.observed[1])
    assert found.expected[1] == pytest.approx(found.mean)
    assert found.low[1] < found.mean < found.high[1]


def test_few_prompts_get_the_weak_prior_by_hand():
    # pooled with half an observation each way: (3 + 0.5) / (8 + 1); then (2 μ + 3) / (2 + 4)
    found = prompt_ambiguity([3.0, 0.0], [4.0, 4.0])
    mean = 3.5 / 9
    assert found.weight == FALLBACK_WEIGHT
    assert found.expected == pytest.approx([(2 * mean + 3) / 6, 2 * mean / 6])


def test_one_split_weighs_less_than_many():
    # both differ in half of their pairs; a hundred other prompts agree
    differing = [1.0, 30.0, *np.zeros(100)]
    evidence = [2.0, 60.0, *np.full(100, 20.0)]
    found = prompt_ambiguity(differing, evidence)
    assert found.observed[0] == found.observed[1] == 0.5
    assert found.expected[0] < found.expected[1]
    assert found.high[0] - found.low[0] > found.high[1] - found.low[1]


def beta_prompts(mean: float, weight: float, n: int, trials: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    share = rng.beta(weight * mean, weight * (1 - mean), n)
    return share, rng.binomial(trials, share).astype(float), np.full(n, float(trials))


@pytest.mark.parametrize(("mean", "weight"), [(0.3, 5.0), (0.2, 20.0), (0.5, 10.0)])
def test_the_prior_that_made_the_prompts_is_found_again(mean, weight):
    _, differing, evidence = beta_prompts(mean, weight, 20_000, 12)
    found = prompt_ambiguity(differing, evidence)
    assert found.mean == pytest.approx(mean, abs=0.01)
    assert found.weight == pytest.approx(weight, rel=0.1)


def test_ninety_five_of_a_hundred_intervals_hold_the_truth():
    share, differing, evidence = beta_prompts(0.3, 8.0, 5_000, 15, seed=3)
    found = prompt_ambiguity(differing, evidence)
    held = np.mean((found.low <= share) & (share <= found.high))
    assert held == pytest.approx(0.95, abs=0.01)


def test_prompts_that_are_all_alike_are_hardly_told_apart():
    rng = np.random.default_rng(1)
    evidence = np.full(500, 12.0)
    found = prompt_ambiguity(rng.binomial(12, 0.3, 500).astype(float), evidence)
    assert found.weight > 100
    assert np.ptp(found.expected) < 0.1 < np.ptp(found.observed)


def test_prompts_without_any_disagreement_stay_near_zero():
    found = prompt_ambiguity(np.zeros(50), np.full(50, 8.0))
    assert found.expected.max() < 0.01
    assert found.weight == FALLBACK_WEIGHT


def test_even_prompts_are_drawn_together_as_far_as_it_goes():
    found = prompt_ambiguity(np.full(50, 4.0), np.full(50, 8.0))
    assert found.weight == HEAVIEST_WEIGHT


@pytest.mark.parametrize("seed", range(10))
def test_ten_prompts_of_coin_flippers_are_found_among_a_hundred(seed):
    # twelve pairs each, five votes a pair; elsewhere annotators are right 85 to 95 times in 100
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.85, 0.95, 100)
    flips = rng.permutation(100)[:10]
    accuracy[flips] = 0.5
    votes_a = rng.binomial(5, accuracy[:, None], (100, 12)).ravel()
    differing, evidence = disagreement_evidence(np.column_stack([votes_a, 5 - votes_a]))
    found = prompt_ambiguity(differing.reshape(100, 12).sum(1), evidence.reshape(100, 12).sum(1))
    listed = np.argsort(-found.expected)[:10]
    assert len(set(listed) & set(flips)) >= 9


@pytest.mark.parametrize(
    ("differing", "evidence"), [([2.0], [1.0]), ([-1.0], [1.0]), ([1.0], [1.0, 2.0])]
)
def test_numbers_that_cannot_be_are_refused(differing, evidence):
    with pytest.raises(ValueError, match=r"evidence|one number"):
        prompt_ambiguity(differing, evidence)


def test_negative_votes_are_refused():
    with pytest.raises(ValueError, match="none negative"):
        disagreement_evidence([[1, -1]])
