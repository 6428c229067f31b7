"""Ranks as people give them, and how old a model is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr

from apps.evaluation.findings import freshness, people_rank
from measures.estimate import Interval
from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.people import reliability, spearman
from measures.trust.significance import (
    Pairs,
    beyond,
    gap_between,
    holm,
    p_above,
    pairs_needed,
    share_of,
    undecided,
)
from tests.workers.trust.worlds import Faults, part, turned, world
from workers.trust.noise import label_noise, swapped_share
from workers.trust.wording import against, points


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
    for figure in ("3 days", "1,200", "30", "2.5 %", "1.8 % (0.9–3.6 %)", "400"):
        assert figure in found.says
    assert freshness(3.7, 1200, 30, flipped=(0, 0)).facts["flipped_share"] is None


# Swapped labels are counted by where the model is sure; clean labels are believed.


def known(n: int, swapped: float, temperature: float, seed: int = 0) -> Pairs:
    """Labels drawn from the curve itself, each pair of its own prompt."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 3, n)
    share = (1 - 2 * swapped) * expit(truth) + swapped
    margin = np.where(rng.random(n) < share, truth, -truth) * temperature
    return Pairs(
        split="made",
        chosen_scores=margin,
        rejected_scores=np.zeros(n),
        chosen_texts=["a"] * n,
        rejected_texts=["b"] * n,
        prompts=["?"] * n,
        confidence=np.ones(n),
        clusters=[str(k) for k in range(n)],
        replicates=200,
    )


@pytest.mark.parametrize(
    ("swapped", "temperature"), [(0.0, 1.0), (0.1, 1.0), (0.1, 4.0), (0.2, 0.5)]
)
def test_the_share_and_the_temperature_are_recovered(swapped, temperature):
    found = swapped_share(known(4_000, swapped, temperature), np.ones(4_000, bool))
    assert found.share.low - 1e-9 <= swapped <= found.share.high
    assert found.share.value == pytest.approx(swapped, abs=0.02)
    assert found.temperature == pytest.approx(temperature, rel=0.15)


def test_one_label_in_ten_swapped_is_red():
    found = label_noise(world(1_500, faults=Faults(swapped=0.1)))
    assert found.verdict is Verdict.RED
    assert found.figure.low < 0.1 < found.figure.high


def test_all_labels_swapped_point_the_other_way():
    found = label_noise(world(600, faults=Faults(swapped=1.0)))
    assert found.verdict is Verdict.RED
    assert "other way" in found.says
    same = label_noise(turned(world(600)))
    assert "other way" in same.says


def test_clean_labels_are_believed():
    found = label_noise(world(1_500))
    assert found.verdict is Verdict.GREEN
    assert found.figure.high < 0.05


def test_over_confident_scores_are_no_swapped_labels():
    assert label_noise(world(1_500, faults=Faults(overconfident=4))).verdict is Verdict.GREEN


def test_split_votes_are_no_swapped_labels():
    found = label_noise(world(1_500, votes=5))
    assert found.verdict is Verdict.GREEN
    assert found.figure.n < 1_500  # three of five is not clear


def test_a_model_that_is_never_sure_contradicts_nobody():
    for fault in ({"blind": True}, {"constant": True}):
        found = label_noise(world(600, faults=Faults(**fault)))
        assert found.verdict is Verdict.UNMEASURED


def test_few_pairs_are_not_measured():
    assert label_noise(part(world(600), slice(0, 60))).verdict is Verdict.UNMEASURED


def test_votes_that_never_agree_are_no_labels():
    pairs = known(300, 0, 1)
    found = label_noise(replace(pairs, confidence=np.full(300, 0.6)))
    assert found.verdict is Verdict.UNMEASURED
    assert "three quarters" in found.says


def test_the_surest_contradictions_are_there_to_read():
    pairs = world(1_500, faults=Faults(swapped=0.1))
    (texts,) = [block for block in label_noise(pairs).evidence if block.kind == "texts"]
    apart = [one.score - one.other_score for one in texts.examples]
    assert apart == sorted(apart)
    assert apart[0] == pytest.approx(pairs.margins.min())
    assert texts.examples[0].answer in pairs.chosen_texts


def test_rows_that_hang_together_widen_the_interval():
    alone = known(400, 0.1, 1)
    index = np.repeat(np.arange(400), 5)  # every row five times
    copied = replace(
        part(replace(alone, clusters=[str(k) for k in range(400)]), index), replicates=500
    )
    one = swapped_share(alone, np.ones(400, bool)).share
    five = swapped_share(copied, np.ones(2_000, bool)).share
    assert five.high - five.low == pytest.approx(one.high - one.low, abs=0.02)


# What an interval allows to be said.


def interval(value, low, high, n=100) -> Interval:
    return Interval(value=value, low=low, high=high, n=n)


NOTHING = Interval(value=0.5, low=None, high=None, n=4, no_interval="too few clusters: 4")


def test_a_gap_of_symmetric_intervals_has_the_root_of_both_squares():
    found = gap_between(interval(0.8, 0.77, 0.83), interval(0.6, 0.56, 0.64))
    # 3 and 4 points make 5.
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.15, 0.25))


def test_a_gap_keeps_the_longer_side_of_a_skewed_interval():
    found = gap_between(interval(0.99, 0.90, 1.0), interval(0.5, 0.5, 0.5))
    assert found.value - found.low == pytest.approx(0.09)
    assert found.high - found.value == pytest.approx(0.01)


def test_a_gap_without_an_interval_says_why():
    found = gap_between(interval(0.8, 0.7, 0.9), NOTHING)
    assert found.value == pytest.approx(0.3)
    assert found.low is None
    assert found.no_interval == "too few clusters: 4"


def test_half_the_width_needs_four_times_the_pairs():
    assert pairs_needed(interval(0.5, 0.4, 0.6, n=100), 0.05) == 400
    assert pairs_needed(NOTHING, 0.05) is None


def test_a_bound_at_the_limit_is_p_of_two_and_a_half_per_cent():
    assert p_above(interval(0.7, 0.6, 0.8), 0.6) == pytest.approx(0.025, abs=1e-4)
    assert p_above(interval(0.7, 0.6, 0.8), 0.8) == pytest.approx(0.975, abs=1e-4)
    assert math.isnan(p_above(NOTHING, 0.5))


def test_holm_by_hand():
    # Of four: 0.005 ≤ 0.025/4, 0.008 ≤ 0.025/3, and 0.02 > 0.025/2 ends it.
    assert holm([0.02, 0.005, 0.5, 0.008]) == [False, True, False, True]
    assert holm([math.nan, 0.02]) == [False, True]
    assert holm([]) == []


def test_only_an_interval_wholly_beyond_is_beyond():
    assert beyond(interval(0.2, 0.06, 0.3), 0.05)
    assert beyond(interval(-0.2, -0.3, -0.06), 0.05)
    assert not beyond(interval(0.2, 0.04, 0.3), 0.05)
    assert not beyond(NOTHING, 0.05)


def test_words_for_a_figure_that_is_no_fault():
    assert against(interval(0.01, -0.02, 0.04), 0.05) == "under 5 points"
    assert "not shown" in against(interval(0.01, -0.02, 0.06), 0.05)
    assert undecided(interval(0.06, -0.02, 0.12), 0.05)
    assert not undecided(interval(0.06, 0.051, 0.12), 0.05)  # a fault
    assert not undecided(interval(0.04, -0.02, 0.12), 0.05)


def test_minus_signs_are_minus_signs_and_nothing_is_minus_nothing():
    assert points(interval(-0.0004, -0.021, 0.02)) == "0.0 points (−2.1 to 2.0)"


def test_everything_alike_has_an_interval_over_what_rows_share():
    pairs = part(world(400), slice(0, 200))
    found = share_of(pairs, np.ones(200))
    # 200 answers in 200 pairs: as many as 100 pairs apart. Wilson: 100/(100 + 1.96²).
    assert (found.value, found.low, found.high) == pytest.approx((1, 0.963, 1), abs=0.001)
    assert share_of(pairs, np.ones(200), where=np.arange(200) < 8).low is None
