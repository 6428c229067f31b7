"""More than two systems: what is called, what is not, and what is refused."""

import choix
import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

from benchmarks.evaluation_world.votes import several_simulated as crowd
from measures.head_to_head import FINAL, Plan, Result, Several, Stopping, Verdict, sequence_factor
from measures.model_ranking import ModelVotes, bradley_terry, strength_gaps
from measures.several_systems import BASELINE, several_result


def part(votes: ModelVotes, n: int) -> ModelVotes:
    return votes.only(np.arange(len(votes)) < n)


def several(result: Result) -> Several:
    assert result.several is not None
    return result.several


def test_differences_are_those_of_choix_and_their_errors_those_of_statsmodels() -> None:
    votes = crowd(1, [0.6, 0.0, -0.4, 0.2], prompts=600, people=25, ties=0.0)
    gaps = strength_gaps(votes)
    wins = [
        (int(a), int(b)) if score else (int(b), int(a))
        for a, b, score in zip(votes.first, votes.second, votes.score, strict=True)
    ]
    theirs = choix.opt_pairwise(4, wins, alpha=1e-9, tol=1e-10)
    assert gaps.values[:, 1] == pytest.approx(theirs - theirs[1], abs=1e-3)
    terms = np.zeros((len(votes), 4))
    terms[np.arange(len(votes)), votes.first] += 1
    terms[np.arange(len(votes)), votes.second] -= 1
    fit = sm.GLM(votes.score, terms[:, [0, 2, 3]], family=sm.families.Binomial()).fit()
    spread = cov_cluster_2groups(fit, votes.prompt, votes.person, use_correction=False)
    by_prompt, by_person = spread[1] * 600 / 599, spread[2] * 25 / 24
    # one vote a prompt, so prompts and (prompt, person) are the same clusters
    for k, system in enumerate((0, 2, 3)):
        expected = max(by_person[k, k], by_prompt[k, k])
        assert gaps.errors[system, 1] ** 2 == pytest.approx(expected, rel=1e-4)


def test_the_fit_is_that_of_the_results_page() -> None:
    votes = crowd(2, [0.6, 0.0, -0.4], prompts=300)
    strengths = {one.model: one.value for one in bradley_terry(votes, replicates=20).strengths}
    gaps = strength_gaps(votes)
    assert gaps.values[0, 2] == pytest.approx(strengths[0] - strengths[2])


@pytest.mark.parametrize(("systems", "people"), [(3, 12), (5, 20)])
def test_equal_systems_are_seldom_told_apart_though_looked_at_every_ten_votes(
    systems: int, people: int
) -> None:
    """Called in so few that the lower 95 % Monte Carlo bound is at most 5 %; a naive reader who
    believes each single-look interval calls far more."""
    rounds, called, naive = 200, 0, 0
    plan = Plan(prompts=240)
    for seed in range(rounds):
        votes = crowd(seed, np.zeros(systems), prompts=240, people=people)
        wrong = too_sure = False
        for n in range(60, 241, 20):
            found = several(several_result(part(votes, n), plan))
            wrong |= any(one.told for one in found.differences)
            too_sure |= any(
                one.once_low is not None and not one.once_low < 0.5 < (one.once_high or 0)
                for one in found.standings
            )
        called, naive = called + wrong, naive + too_sure
    share = called / rounds
    assert share - 1.96 * np.sqrt(share * (1 - share) / rounds) <= 0.05, f"{called} of {rounds}"
    assert naive / rounds > 0.15


def test_the_best_is_found_and_ends_it() -> None:
    votes = crowd(3, [1.6, 0.0, 0.1, -0.1], prompts=400, people=30)
    result = several_result(votes, Plan(prompts=400))
    assert result.verdict == Verdict.BEST
    assert result.verdict in FINAL
    found = several(result)
    assert found.first == 0
    assert [one.worst for one in found.standings if one.system == 0] == [1]
    assert result.estimate is not None
    assert result.estimate.low is not None
    assert result.estimate.low > 0.5
    assert {one.system: one.low for one in found.standings}[BASELINE] is None


def test_a_single_look_is_narrower_and_waits_for_all_votes() -> None:
    votes = crowd(4, [0.5, 0.0, 0.1], prompts=300)
    end = Plan(prompts=300, stopping=Stopping.AT_THE_END)
    assert several_result(part(votes, 200), end).verdict == Verdict.WAITING
    once, always = (several_result(votes, plan).estimate for plan in (end, Plan(prompts=300)))
    assert once is not None
    assert always is not None
    assert None not in (once.low, once.high, always.low, always.high)
    assert once.high - once.low < 0.8 * (always.high - always.low)  # type: ignore[operator]


def test_the_p_value_touches_alpha_where_the_interval_touches_no_difference() -> None:
    from measures.several_systems import _Rule  # the one rule behind both

    rule = _Rule(Plan(prompts=200), 150, 40, 4)
    half = rule.half(0.2)
    assert rule.p(half, 0.2) == pytest.approx(0.05 / 6)
    assert half / 0.2 > sequence_factor(150, 200, 0.05 / 6)  # t for few people


def test_what_votes_do_not_connect_is_not_ranked_and_the_groups_are_named() -> None:
    votes = crowd(5, np.zeros(4), prompts=120, pairs=[(0, 1), (2, 3)])
    result = several_result(votes, Plan(prompts=120))
    assert result.verdict == Verdict.NOT_CONNECTED
    found = several(result)
    assert found.groups == [[0, 1], [2, 3]]
    assert (found.standings, result.estimate) == ([], None)
    assert not any(one.told for one in found.differences)


def test_a_system_that_wins_every_vote_has_no_bound() -> None:
    votes = crowd(6, np.zeros(3), prompts=120, ties=0.0)
    always = np.where(votes.first == 2, 1.0, np.where(votes.second == 2, 0.0, votes.score))
    sure = ModelVotes(
        *(3, votes.first, votes.second, always),
        *(votes.prompt, votes.person, votes.side, votes.length),
    )
    assert several_result(sure, Plan(prompts=120)).verdict == Verdict.SEPARATED


def test_too_few_people_prompts_or_uneven_sides_conclude_nothing() -> None:
    plan = Plan(prompts=400)
    few_people = several_result(crowd(7, [2, 0, 0], prompts=400, people=4), plan)
    assert few_people.verdict == Verdict.TOO_FEW_PEOPLE
    few_prompts = several_result(crowd(7, [2, 0, 0], prompts=24), plan)
    assert few_prompts.verdict == Verdict.TOO_FEW_PROMPTS  # 16 of each system
    votes = crowd(7, [2, 0, 0], prompts=400)
    one_side = ModelVotes(
        *(3, votes.first, votes.second, votes.score, votes.prompt, votes.person),
        *(np.full(400, 0.5), votes.length),
    )
    assert several_result(one_side, plan).verdict == Verdict.ONE_SIDED


def test_a_system_that_only_writes_longer_is_level_at_equal_length() -> None:
    lengths = [1.0, 0.0, 0.0]
    votes = crowd(8, [0, 0, 0], prompts=1500, people=60, left=0.8, longer=1.0, lengths=lengths)
    found = several(several_result(votes, Plan(prompts=1500)))
    longer = next(one for one in found.standings if one.system == 0)
    assert longer.low is not None
    assert longer.low > 0.5  # as people voted
    assert longer.controlled == pytest.approx(0.5, abs=0.06)
    assert longer.controlled_low is not None
    assert longer.controlled_low < 0.5
    habits = {one.name: one for one in found.habits}
    assert habits["side"].low > 0
    assert habits["length"].low > 0


def test_sides_and_lengths_enter_with_the_sign_of_who_stands_first() -> None:
    """Naming the other answer A, with its score, side and length turned, changes nothing."""
    votes = crowd(9, [0.5, 0.0, -0.3], prompts=300, left=0.6, longer=0.5, lengths=[0.5, 0, 0.2])
    swapped = ModelVotes(
        *(3, votes.second, votes.first, 1 - votes.score, votes.prompt, votes.person),
        *(-votes.side, -votes.length),
    )
    one, other = (strength_gaps(given, controls=("side", "length")) for given in (votes, swapped))
    assert one.values == pytest.approx(other.values, abs=1e-8)
    assert one.errors == pytest.approx(other.errors, abs=1e-8)
    assert one.controls["side"] == pytest.approx(other.controls["side"], abs=1e-8)


def test_votes_of_one_person_that_carry_the_first_place_are_counted() -> None:
    """Systems 0 and 1 do equally well against 2, but for a tie that gives 1 half a vote more there.
    Between the two it stands 20 to 25 without one person's 12 votes for system 0. Without 6 of
    these system 0 is still a whole vote ahead; without 7 they are level, and the half decides."""
    given = [
        *((0, 1, 1.0, 20), (0, 1, 0.0, 25), (0, 2, 1.0, 30), (0, 2, 0.0, 10)),
        *((1, 2, 1.0, 30), (1, 2, 0.5, 1), (1, 2, 0.0, 9), (0, 1, 1.0, 12)),
    ]
    first, second, score = (
        np.repeat([row[k] for row in given], [row[3] for row in given]) for k in range(3)
    )
    n = len(score)
    person = np.where(np.arange(n) < n - 12, np.arange(n) % 40, 99)  # of the others 4 votes each
    side, length = np.tile([0.5, -0.5], n)[:n], np.random.default_rng(11).normal(0, 0.3, n)
    votes = ModelVotes(3, first, second, score, np.arange(n), person, side, length)
    found = several_result(votes, Plan(prompts=n))
    assert (several(found).first, found.flips) == (0, 7)
    clear = several_result(crowd(10, [2.5, 0, 0], prompts=400, people=40), Plan(prompts=400))
    assert clear.flips is None
    level = several_result(crowd(12, np.zeros(3), prompts=300, people=6), Plan(prompts=300))
    assert level.flips is not None
    assert level.flips < 30


def test_both_bad_says_nothing_about_which_is_better() -> None:
    votes = crowd(13, [0.5, 0, 0], prompts=300)
    bad = ModelVotes(
        *(3, np.r_[votes.first, [0] * 30], np.r_[votes.second, [1] * 30]),
        *(np.r_[votes.score, [np.nan] * 30], np.r_[votes.prompt, np.arange(30)]),
        *(np.r_[votes.person, np.arange(30) % 20], np.r_[votes.side, [0.5, -0.5] * 15]),
        np.r_[votes.length, [0.0] * 30],
    )
    one, other = (several_result(given, Plan(prompts=400)) for given in (votes, bad))
    assert one.estimate is not None
    assert other.estimate is not None
    assert one.estimate.value == pytest.approx(other.estimate.value)
    assert other.outcomes["both_bad"] == 30
    pair = next(d for d in several(other).differences if (d.first, d.second) == (0, 1))
    assert pair.both_bad == 30
