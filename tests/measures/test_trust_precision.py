"""Cheaper number formats and the order of answers."""

import numpy as np
import pytest
from scipy.stats import kendalltau, somersd

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.precision import precision_line, rank_agreement


def noisy(scores, noise, seed=0):
    return scores + noise * np.random.default_rng(seed).normal(size=len(scores))


def rounded(scores, bits):
    """To a float of so many bits behind the point, as bfloat16 (8) does."""
    exponent = np.floor(np.log2(np.abs(scores)))
    step = 2.0 ** (exponent - bits)
    return np.round(scores / step) * step


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(1).normal(0, 2, 400)


def test_four_answers_are_counted_by_hand():
    # Six pairs: (1,2) (1,3) (1,4) (2,3) (2,4) kept, (3,4) turned around.
    assert rank_agreement([1, 2, 3, 4], [1, 2, 4, 3]).value == pytest.approx(5 / 6)
    # (3,4) tied now: half a pair.
    assert rank_agreement([1, 2, 3, 4], [1, 2, 3, 3]).value == pytest.approx(5.5 / 6)
    # Pairs that the reference ties say nothing.
    assert rank_agreement([1, 1, 2], [5, 9, 7]).value == pytest.approx(0.5)


def test_it_is_kendalls_tau_without_ties_and_somers_d_with_them(scores):
    other = noisy(scores, 0.3)
    tau = kendalltau(scores, other).statistic
    assert rank_agreement(scores, other).value == pytest.approx((1 + tau) / 2)
    few, tied = np.round(scores[:80]), np.round(other[:80])
    expected = somersd(few, tied).statistic
    assert rank_agreement(few, tied).value == pytest.approx((1 + expected) / 2)


def test_the_interval_covers_the_truth():
    truth = rank_agreement(
        np.random.default_rng(0).normal(size=4000),
        noisy(np.random.default_rng(0).normal(size=4000), 0.05, seed=8),
    ).value
    covered = 0
    for seed in range(60):
        one = np.random.default_rng([seed, 3]).normal(size=200)
        found = rank_agreement(one, noisy(one, 0.05, seed))
        covered += found.low <= truth <= found.high
    assert covered >= 53


def test_the_same_and_the_reverse_are_the_ends(scores):
    same, reverse = rank_agreement(scores, 3 * scores + 1), rank_agreement(scores, -scores)
    assert (same.value, same.low, same.high) == (1, 1, 1)
    assert (reverse.value, reverse.high) == (0, 0)


def test_half_precision_is_green_in_nineteen_of_twenty():
    green = 0
    for seed in range(20):
        one = np.random.default_rng(seed).normal(0, 2, 400)
        found = precision_line(one, {"bfloat16": noisy(rounded(one, 8), 0.01, seed)})
        green += found.verdict is Verdict.GREEN
    assert green >= 19


def test_a_format_that_turns_pairs_around_is_red_and_named(scores):
    found = precision_line(
        scores, {"bfloat16": rounded(scores, 8), "int8": noisy(scores, 0.3), "int4": -scores}
    )
    assert found.verdict is Verdict.RED
    assert found.facts["failed"] == ["int8", "int4"]
    assert "do not serve in int8 and int4" in found.says
    assert finding_from_json(finding_to_json(found)) == found


def test_a_format_that_is_not_served_in_does_not_count(scores):
    tried = {"bfloat16": rounded(scores, 8), "int8": noisy(scores, 0.3)}
    found = precision_line(scores, tried, served="bfloat16")
    assert found.verdict is Verdict.GREEN
    assert "Not so int8" in found.says
    assert precision_line(scores, tried, served="int8").verdict is Verdict.RED


def test_a_score_that_says_the_same_of_all_in_a_cheaper_format_is_red(scores):
    found = precision_line(scores, {"int8": np.zeros(400)})
    assert found.verdict is Verdict.RED
    assert found.figure.value == 0.5


def test_without_other_formats_answers_or_order_nothing_is_measured(scores):
    assert precision_line(scores, {}).verdict is Verdict.UNMEASURED
    assert precision_line(np.ones(100), {"int8": scores[:100]}).verdict is Verdict.UNMEASURED
    few = {"bfloat16": rounded(scores[:20], 8)}
    assert precision_line(scores[:20], few).verdict is Verdict.UNMEASURED
    assert precision_line(scores[:20], {"int8": -scores[:20]}).verdict is Verdict.RED


def test_scores_that_are_no_numbers_are_refused(scores):
    with pytest.raises(ValueError, match="no number"):
        rank_agreement([1.0, 2.0], [1.0, float("nan")])
    with pytest.raises(ValueError, match="of a length"):
        rank_agreement([1.0, 2.0], [1.0])
