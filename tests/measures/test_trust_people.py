"""Ranks as people give them, and how old a model is."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.freshness import freshness
from measures.trust.people import people_rank, reliability, spearman


def graded(seed, *, n=100, noise=0.2, graders=3, grader_noise=0.3):
    """(scores, single grades): worth seen by the model and by people, each with noise."""
    rng = np.random.default_rng([seed, 7])
    worth = rng.normal(size=n)
    grades = worth[:, None] + grader_noise * rng.normal(size=(n, graders))
    return worth + noise * rng.normal(size=n), np.round(3 + grades, 1)


def means(grades):
    return [(float(row.mean()), len(row)) for row in grades]


def test_seven_tenths_on_a_hundred_is_known_to_what_the_specification_says():
    rng = np.random.default_rng(0)
    one = rng.normal(size=100)
    other = one + rng.normal(size=100)
    for _ in range(2000):  # move towards ρ = 0.7 by small steps
        rho = spearmanr(one, other).statistic
        if abs(rho - 0.7) < 0.001:
            break
        other += (0.7 - rho) * 0.05 * one
    found = spearman(one, other)
    assert found.value == pytest.approx(0.7, abs=0.001)
    assert (found.low, found.high) == pytest.approx((0.58, 0.79), abs=0.005)


def test_the_correlation_is_scipys_with_ties():
    rng = np.random.default_rng(1)
    one, other = rng.integers(0, 5, 60), rng.integers(0, 4, 60)
    assert spearman(one, other).value == pytest.approx(spearmanr(one, other).statistic)


def test_the_interval_covers_the_truth_in_nineteen_of_twenty():
    truth = 6 / np.pi * np.arcsin(0.7 / 2)  # Spearman's ρ of a normal pair with r = 0.7
    covered = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        one = rng.normal(size=100)
        found = spearman(one, 0.7 * one + np.sqrt(1 - 0.49) * rng.normal(size=100))
        covered += found.low <= truth <= found.high
    assert covered >= 276  # 92 %


def test_a_model_that_ranks_as_people_do_is_green_in_nineteen_of_twenty():
    green = 0
    for seed in range(20):
        scores, grades = graded(seed)
        green += people_rank(scores, means(grades)).verdict is Verdict.GREEN
    assert green >= 19


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_does_not_is_red(seed):
    scores, grades = graded(seed, noise=2.0)
    found = people_rank(scores, means(grades))
    assert found.verdict is Verdict.RED
    assert "under 0.7" in found.says
    assert people_rank(-scores, means(grades)).figure.value < 0
    assert finding_from_json(finding_to_json(found)) == found


def test_a_good_correlation_on_few_outputs_is_not_shown_yet():
    scores, grades = graded(3, n=32, noise=0.7, grader_noise=0.2)
    found = people_rank(scores, means(grades))
    assert found.figure.value > 0.7 > found.figure.low
    assert found.verdict is Verdict.RED
    assert "not shown" in found.says


def test_few_outputs_and_single_grades_are_not_measured():
    scores, grades = graded(4)
    assert people_rank([], []).verdict is Verdict.UNMEASURED
    assert people_rank(scores[:29], means(grades[:29])).verdict is Verdict.UNMEASURED
    single = people_rank(scores, [(mean, 1) for mean, _ in means(grades)])
    assert single.verdict is Verdict.UNMEASURED
    assert "100 still wait" in single.says


def test_outputs_that_wait_for_grades_are_left_out():
    scores, grades = graded(5)
    given = [(mean, 1 if i < 40 else 3) for i, (mean, _) in enumerate(means(grades))]
    found = people_rank(scores, given)
    assert found.facts["outputs"] == 60
    assert found.figure.value == pytest.approx(
        spearmanr(scores[40:], grades[40:].mean(axis=1)).statistic
    )


def test_the_same_score_for_all_is_red_and_the_same_grade_is_not_measured():
    scores, grades = graded(6)
    assert people_rank(np.ones(100), means(grades)).verdict is Verdict.RED
    assert people_rank(scores, [(3.0, 3)] * 100).verdict is Verdict.UNMEASURED


def test_the_noise_of_graders_is_named_and_decides_nothing():
    scores, grades = graded(7, noise=0.1, graders=2, grader_noise=1.2)
    found = people_rank(scores, means(grades), single_grades=grades.tolist())
    # Variance of worth 1, of a mean of two graders 1.44 / 2.
    assert found.facts["reliability"] == pytest.approx(1 / 1.72, abs=0.12)
    assert found.facts["corrected"] > found.figure.value + 0.1
    assert found.verdict is people_rank(scores, means(grades)).verdict is Verdict.RED
    assert "without noise" in found.says


def test_reliability_by_hand():
    # Means 2 and 4: between 2. Within: (1 + 1 + 1 + 1) / 2 = 2, of a mean 1. 1 − 1/2.
    assert reliability([[1, 3], [3, 5]]) == pytest.approx(0.5)
    assert reliability([[1, 1], [3, 3], [2]]) == pytest.approx(1)
    assert reliability([[1, 3], [3, 1]]) is None
    assert reliability([[1, 3]]) is None


# --- upkeep ---


@pytest.mark.parametrize(
    ("age", "trained", "since", "verdict"),
    [
        (0, 1000, 0, Verdict.GREEN),
        (30, 1000, 200, Verdict.GREEN),
        (30.1, 1000, 0, Verdict.RED),
        (1, 1000, 201, Verdict.RED),
        (45, 1000, 900, Verdict.RED),
    ],
)
def test_age_and_new_votes_decide(age, trained, since, verdict):
    found = freshness(age, trained, since)
    assert found.verdict is verdict
    assert found.facts["retrain"] is (verdict is Verdict.RED)
    assert ("Retrain it" in found.says) is (verdict is Verdict.RED)
    assert finding_from_json(finding_to_json(found)) == found


def test_what_is_not_known_is_not_measured():
    for known in ((None, 10, 0), (1, None, 0), (1, 10, None), (1, 0, 5)):
        assert freshness(*known).verdict is Verdict.UNMEASURED


def test_changed_winners_are_told_and_decide_nothing():
    found = freshness(3.7, 1200, 30, flipped=(7, 400))
    assert found.verdict is Verdict.GREEN
    assert found.says == (
        "Trained 3 days ago on 1,200 votes; 30 came since, 2.5 % as many; "
        "1.8 % (0.9–3.6 %) of 400 comparisons have another winner now."
    )
    assert freshness(3.7, 1200, 30, flipped=(0, 0)).facts["flipped_share"] is None
