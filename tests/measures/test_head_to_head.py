"""Votes on two systems: the interval, what is called, and what is not."""

import math
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import stdtrit
from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

from benchmarks.evaluation_world.votes import first, simulated
from measures.head_to_head import (
    FINAL,
    Plan,
    Stopping,
    Verdict,
    Votes,
    apart,
    effective_number,
    exact_interval,
    result_of,
    sequence_factor,
    votes_needed,
)


def given(score: Any, prompt: Any, person: Any, left: Any = None) -> Votes:
    n = len(score)
    sides = np.arange(n) % 2 if left is None else left
    return Votes(
        np.asarray(score, dtype=float),
        np.zeros(n, dtype=bool),
        np.asarray(prompt),
        np.asarray(person),
        np.asarray(sides, dtype=float),
    )


def test_the_standard_error_is_that_of_two_way_clusters_elsewhere() -> None:
    rng = np.random.default_rng(3)
    votes = simulated(rng, prompts=60, each=3, people=9, of_prompts=1, of_people=0.7)
    found = result_of(votes, Plan(prompts=60, votes_each=3)).estimate
    fit = sm.OLS(votes.score, np.ones(len(votes))).fit()
    both, by_prompt, by_person = (
        float(part[0, 0])
        for part in cov_cluster_2groups(fit, votes.prompt, votes.person, use_correction=True)
    )
    # Its correction has n − 1 over n − 1 parameters besides C/(C − 1).
    assert found is not None
    assert found.error is not None
    expected = max(both, by_prompt, by_person)
    assert found.error**2 == pytest.approx(expected, rel=0.01)
    half = float(stdtrit(8, 0.975)) * found.error
    assert found.once_low == pytest.approx(found.value - half)


def test_the_sequence_is_as_wide_as_its_authors_have_it() -> None:
    factors = [sequence_factor(int(300 * part), 300) for part in (0.25, 0.5, 1, 2, 4, 10)]
    assert factors == pytest.approx([3.26, 3.08, 3.04, 3.06, 3.13, 3.24], abs=0.01)


def test_eight_people_of_their_own_taste_are_seldom_called_though_looked_at_every_day() -> None:
    plan = Plan(prompts=300, votes_each=3)
    rng = np.random.default_rng(21)
    called = naive = 0
    rounds = 800
    for _ in range(rounds):
        votes = simulated(rng, prompts=300, each=3, people=8, of_prompts=1, of_people=0.7)
        verdicts = set()
        too_sure = False
        for prompts in range(20, 301, 10):
            seen = first(votes, 3 * prompts)
            verdicts.add(result_of(seen, plan).verdict)
            mean = float(seen.score.mean())
            too_sure |= abs(mean - 0.5) > 1.96 * math.sqrt(mean * (1 - mean) / len(seen))
        called += bool(verdicts & {Verdict.BETTER, Verdict.WORSE})
        naive += too_sure
    share = called / rounds
    lower = share - 1.96 * math.sqrt(share * (1 - share) / rounds)
    assert lower <= 0.05, f"{called} of {rounds} called; without clusters {naive}"
    assert naive / rounds > 0.5  # what it is for


def test_a_policy_that_loses_by_five_points_is_an_alarm_with_forty_people() -> None:
    rng = np.random.default_rng(5)
    plan = Plan(prompts=1000)
    found = [
        result_of(
            simulated(rng, prompts=1000, each=1, people=40, of_prompts=0, of_people=0, win=0.45),
            Plan(prompts=1000, stopping=Stopping.AT_THE_END),
        ).verdict
        for _ in range(40)
    ]
    assert found.count(Verdict.WORSE) >= 30
    assert Verdict.BETTER not in found
    few = simulated(rng, prompts=1000, each=1, people=8, of_prompts=1, of_people=0.7, win=0.45)
    result = result_of(few, plan)
    assert result.verdict not in FINAL
    assert result.people_needed is not None
    assert result.people_needed > 8


def test_sides_that_nobody_drew_are_refused() -> None:
    rng = np.random.default_rng(1)
    n = 200
    score, people = np.ones(n), rng.integers(0, 20, n)
    always = given(score, np.arange(n), people, left=np.ones(n))
    assert result_of(always, Plan(prompts=n)).verdict == Verdict.ONE_SIDED
    assert result_of(given(score, np.arange(n), people), Plan(prompts=n)).left_share == 0.5
    unknown = given(score, np.arange(n), people, left=np.full(n, np.nan))
    assert result_of(unknown, Plan(prompts=n)).verdict != Verdict.ONE_SIDED


def test_one_person_with_most_votes_is_few_people() -> None:
    counts = [60, *[40 / 6] * 6]
    assert effective_number(counts) == pytest.approx(2.6, abs=0.05)
    people = np.repeat(np.arange(7), [60, 7, 7, 7, 7, 6, 6])
    result = result_of(given(np.arange(100) % 2, np.arange(100), people), Plan(prompts=100))
    assert result.effective_people == pytest.approx(2.6, abs=0.05)


def test_ties_answers_alike_and_bad_ones_count_half_and_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    n = 120
    score = rng.choice([0.0, 0.5, 1.0], n)
    bad = (score == 0.5) & (rng.random(n) < 0.5)
    votes = Votes(score, bad, np.arange(n), rng.integers(0, 12, n), np.arange(n) % 2.0)
    plain = result_of(votes, Plan(prompts=n))
    half = result_of(votes, Plan(prompts=n, alike=n))
    assert plain.estimate is not None
    assert half.estimate is not None
    assert half.estimate.value - 0.5 == pytest.approx((plain.estimate.value - 0.5) / 2)
    assert half.estimate.error == pytest.approx((plain.estimate.error or 0) / 2)
    assert sum(plain.outcomes.values()) == n
    assert plain.outcomes["both_bad"] == bad.sum() > 0
    wins, losses = plain.outcomes["win"], plain.outcomes["loss"]
    assert plain.net == pytest.approx((wins - losses) / n)
    assert plain.decided_rate == pytest.approx(wins / (wins + losses))


def test_prompts_weigh_alike_while_votes_are_still_coming() -> None:
    prompt = [0] * 9 + list(range(1, 31))
    score = [1.0] * 9 + [0.0] * 30
    result = result_of(given(score, prompt, np.arange(39) % 13), Plan(prompts=31, votes_each=9))
    assert result.estimate is not None
    assert result.estimate.value == pytest.approx(1 / 31)


def test_a_pull_to_the_left_is_no_better_system() -> None:
    left = np.arange(400) % 2.0
    score = np.where(np.arange(400) % 5 < 4, left, 1 - left)  # four of five prefer what stands left
    result = result_of(given(score, np.arange(400), np.arange(400) % 23, left), Plan(prompts=400))
    assert result.pull == pytest.approx(0.3, abs=0.02)
    assert result.estimate is not None
    assert result.estimate.value == pytest.approx(0.5, abs=0.02)


def test_few_votes_of_one_person_that_decide_it_are_counted() -> None:
    score = [1.0] * 14 + [0.0] * 10
    busy = given(score, np.arange(24), [0] * 9 + list(range(1, 16)))
    assert result_of(busy, Plan(prompts=24)).flips == 4
    spread = given(score, np.arange(24), np.arange(24))
    assert result_of(spread, Plan(prompts=24)).flips is None


@pytest.mark.parametrize(
    ("n", "people", "verdict"),
    [
        (0, 1, Verdict.WAITING),
        (40, 4, Verdict.TOO_FEW_PEOPLE),
        (18, 6, Verdict.TOO_FEW_PROMPTS),
        (60, 12, Verdict.UNDECIDED),
    ],
)
def test_too_few_of_anything_says_so(n: int, people: int, verdict: Verdict) -> None:
    found = result_of(
        given(np.arange(n) // 2 % 2, np.arange(n), np.arange(n) % people), Plan(prompts=400)
    )
    assert found.verdict == verdict
    if verdict in (Verdict.TOO_FEW_PEOPLE, Verdict.TOO_FEW_PROMPTS):
        assert found.estimate is not None
        assert found.estimate.low is None


def test_a_plan_that_is_told_at_the_end_is_told_at_the_end() -> None:
    n = 200
    votes = given(np.arange(n) % 10 < 8, np.arange(n), np.arange(n) % 40)
    plan = Plan(prompts=300, stopping=Stopping.AT_THE_END)
    assert result_of(votes, plan).verdict == Verdict.WAITING
    assert result_of(votes, plan, ended=True).verdict == Verdict.BETTER


def test_systems_that_do_not_differ_are_called_alike_and_end_it() -> None:
    rng = np.random.default_rng(4)
    votes = simulated(rng, prompts=3000, each=1, people=60, of_prompts=0, of_people=0)
    result = result_of(votes, Plan(prompts=3000, margin=0.05))
    assert result.verdict == Verdict.NO_DIFFERENCE
    assert result.verdict in FINAL


@pytest.mark.parametrize(
    ("difference", "votes"), [(0.02, 4162), (0.03, 1846), (0.05, 660), (0.10, 159)]
)
def test_votes_needed(difference: float, votes: int) -> None:
    assert votes_needed(difference=difference) == pytest.approx(votes, rel=0.015)


@pytest.mark.parametrize(
    "settings",
    [{"prompts": 0}, {"prompts": 5, "margin": 0.5}, {"prompts": 5, "alpha": 0.0}],
)
def test_a_plan_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Plan(**settings)


@pytest.mark.parametrize(
    ("score", "people", "verdict"),
    [
        (1.0, 12, Verdict.BETTER),
        (0.0, 12, Verdict.WORSE),
        (0.5, 60, Verdict.NO_DIFFERENCE),
        (0.5, 12, Verdict.UNDECIDED),
        (1.0, 5, Verdict.UNDECIDED),
    ],
)
def test_people_of_one_mind_are_believed_by_their_number(
    score: float, people: int, verdict: Verdict
) -> None:
    n = 120
    votes = given(np.full(n, score), np.arange(n), np.arange(n) % people)
    result = result_of(votes, Plan(prompts=400))
    assert result.verdict == verdict
    assert result.estimate is not None
    if score == 1.0:
        assert result.estimate.low == pytest.approx(0.025 ** (1 / people))
        assert result.estimate.high == pytest.approx(1.0)


# Under 20 prompts: the exact interval.


def test_no_interval_under_twenty_prompts_calls_more_than_one_in_twenty() -> None:
    """People of strong taste on prompts that differ, looked at after every vote."""
    rng = np.random.default_rng(31)
    rounds, called, naive = 300, 0, 0
    for _ in range(rounds):
        votes = simulated(rng, prompts=16, each=2, people=16, of_prompts=1.5, of_people=1.5)
        wrong = too_sure = False
        for n in range(8, 33, 3):
            seen = first(votes, n)
            verdict = result_of(seen, Plan(prompts=16, votes_each=2)).verdict
            wrong |= verdict in (Verdict.BETTER, Verdict.WORSE)
            mean = float(seen.score.mean())
            too_sure |= abs(mean - 0.5) > 1.96 * math.sqrt(mean * (1 - mean) / n)
        called, naive = called + wrong, naive + too_sure
    assert called / rounds <= 0.05, f"{called} of {rounds}"
    assert naive / rounds > 0.15


def test_eight_of_eight_are_the_fewest_that_tell() -> None:
    for n, verdict in ((7, Verdict.TOO_FEW_PEOPLE), (8, Verdict.BETTER)):
        votes = given(np.ones(n), np.arange(n), np.arange(n))
        result = result_of(votes, Plan(prompts=12))
        assert result.verdict == verdict
    assert result.estimate is not None
    assert result.estimate.exact_votes == 8
    low, high = exact_interval(np.ones(8))
    assert high == pytest.approx(1)
    # by hand: 1 / (9 m⁸) = 20
    assert low == pytest.approx((1 / 180) ** (1 / 8), abs=1e-6)
    losing = given(np.zeros(8), np.arange(8), np.arange(8))
    assert result_of(losing, Plan(prompts=12)).verdict == Verdict.WORSE


def test_votes_of_one_person_or_prompt_count_once_where_prompts_are_few() -> None:
    prompts = np.r_[np.arange(12), np.zeros(7, dtype=int)]
    people = np.r_[np.zeros(12, dtype=int), np.arange(1, 8)]
    result = result_of(given(np.ones(19), prompts, people), Plan(prompts=12, votes_each=8))
    assert result.estimate is not None
    assert (result.estimate.exact_votes, result.estimate.low) == (1, None)
    assert result.verdict not in FINAL
    assert apart(np.array([1, 1, 2, 3]), np.array([5, 6, 5, 7])).tolist() == [0, 3]


def test_ties_bring_the_exact_interval_to_the_middle() -> None:
    low, high = exact_interval(np.full(15, 0.5))
    assert low < 0.5 < high
    assert low == pytest.approx(1 - high)
    assert exact_interval(np.array([])) == (0.0, 1.0)
    wider = exact_interval(np.r_[np.ones(8), 0.5])
    assert wider[0] < exact_interval(np.ones(9))[0]


def test_a_plan_of_many_prompts_waits_for_twenty() -> None:
    """Two rules on one comparison would call twice as often."""
    votes = given(np.ones(12), np.arange(12), np.arange(12))
    assert result_of(votes, Plan(prompts=200)).verdict == Verdict.TOO_FEW_PROMPTS
