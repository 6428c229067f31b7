"""Votes of people with a judge's verdicts: the interval, what the judge saves, and its limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, stdtrit

from benchmarks.judges import World, known, simulated
from measures.intervals import wilson
from measures.model_ranking import two_way_rate
from measures.ppi import JudgedVotes, ppi_estimate
from workers.contract.reasons import reason_words

RUNS = 1_000


def given(verdict: Any, score: Any, pair: Any, person: Any = None, **more: Any) -> JudgedVotes:
    """One pair a prompt and another person for each vote, unless it is said."""
    return JudgedVotes(
        verdict=np.asarray(verdict, dtype=float),
        prompt=np.asarray(more.get("prompt", np.arange(len(verdict)))),
        score=np.asarray(score, dtype=float),
        pair=np.asarray(pair),
        person=np.arange(len(score)) if person is None else np.asarray(person),
        stratum=more.get("stratum"),
    )


def coverage(world: World, judge: str, *, seed: int, runs: int = RUNS) -> dict[str, float]:
    inside = dict.fromkeys(("people", "ppi", "judge"), 0)
    for run in range(runs):
        found = ppi_estimate(simulated(np.random.default_rng([seed, run]), world, judge))
        for name in inside:
            part = getattr(found, name)
            inside[name] += part.low <= world.truth <= part.high
    return {name: count / runs for name, count in inside.items()}


@pytest.mark.parametrize(
    "world",
    [World(), World(pairs_each=2, votes_each=2, of_prompts=1.0, of_people=0.7)],
    ids=["a vote each", "clusters"],
)
def test_the_interval_covers_the_truth_and_that_of_a_judge_who_loves_length_does_not(
    world: World,
) -> None:
    found = coverage(world, "length lover", seed=4)
    bounds = wilson(found["ppi"] * RUNS, RUNS)
    assert bounds.low is not None
    assert bounds.high is not None
    assert bounds.low <= 0.95 <= bounds.high
    assert found["judge"] < 0.01


@pytest.mark.parametrize("sampled", [20, 30, 50])
@pytest.mark.parametrize("judge", ["length lover", "75 %"])
def test_small_samples_are_covered_too(sampled: int, judge: str) -> None:
    assert coverage(World(sampled=sampled), judge, seed=5, runs=600)["ppi"] >= 0.93


def test_where_only_some_pairs_of_a_prompt_have_votes_the_interval_holds() -> None:
    rng = np.random.default_rng(8)
    inside = 0
    for _ in range(600):
        prompt = np.repeat(np.arange(60), 5)
        shared = 2 * rng.normal(size=60)[prompt]
        chance = expit(shared + rng.normal(size=300))
        pair = np.flatnonzero(np.arange(300) % 5 == 0)
        votes = (rng.random(60) < chance[pair]).astype(float)
        found = ppi_estimate(given(chance, votes, pair, prompt=prompt), people_matter=False)
        inside += found.ppi.low <= 0.5 <= found.ppi.high
    bounds = wilson(inside, 600)
    assert bounds.low <= 0.95 <= bounds.high


def test_votes_alone_have_the_interval_of_a_comparison_of_models() -> None:
    votes = simulated(np.random.default_rng(1), World(votes_each=3), "perfect")
    found = ppi_estimate(votes).people
    rate = two_way_rate(votes.score, votes.pair, votes.person)
    assert (found.value, found.low, found.high) == pytest.approx((rate.value, rate.low, rate.high))


def test_lambda_and_the_interval_are_the_published_ones_for_independent_pairs() -> None:
    rng = np.random.default_rng(2)
    chance = rng.random(500)
    y, f = (rng.random(80) < chance[:80]).astype(float), chance
    found = ppi_estimate(given(f, y, np.arange(80)), people_matter=False)
    labelled, free = f[:80], f[80:]
    # arXiv 2311.01453, with the variance of each part of f its own.
    lam = np.cov(y, labelled)[0, 1] / 80 / (labelled.var(ddof=1) / 80 + free.var(ddof=1) / 420)
    value = y.mean() + lam * (free.mean() - labelled.mean())
    rest = (y - lam * labelled).var(ddof=1) / 80 * 79 / 78
    half = stdtrit(78, 0.975) * np.sqrt(lam**2 * free.var(ddof=1) / 420 + rest)
    assert found.lam == pytest.approx(lam)
    assert found.ppi.value == pytest.approx(value)
    assert found.half == pytest.approx(half)


def test_a_better_judge_saves_more_and_none_saves_more_than_people_agree() -> None:
    world = World(sampled=400, votes_each=2, pairs=4_000, of_people=0.0)
    found = {
        judge: ppi_estimate(simulated(np.random.default_rng(6), world, judge))
        for judge in ("length lover", "66 %", "75 %", "perfect")
    }
    saved = [one.saved for one in found.values()]
    assert saved == sorted(saved)
    best = found["perfect"]
    assert best.rho2 == pytest.approx(best.alpha.value, abs=0.07)
    assert best.alpha.value == pytest.approx(known("perfect", world)[1], abs=0.07)
    two = best.alpha.value
    assert best.ceiling.value == pytest.approx(2 * two / (1 + two))
    assert best.saved == pytest.approx(best.ceiling.value / 1.1, abs=0.07)
    assert best.n_equivalent == pytest.approx(800 / (1 - best.saved))


def test_a_judge_who_prefers_the_worse_answer_is_left_out() -> None:
    votes = simulated(np.random.default_rng(3), World(), "perfect")
    found = ppi_estimate(replace(votes, verdict=1 - votes.verdict))
    assert (found.lam, found.saved) == (0.0, 0.0)
    assert found.ppi == found.people


def test_without_further_pairs_it_is_people_alone_and_says_so() -> None:
    votes = simulated(np.random.default_rng(3), World(pairs=100), "perfect")
    found = ppi_estimate(votes)
    assert found.ppi == found.people
    assert reason_words(found.without_judge).startswith("every pair has votes")
    alike = ppi_estimate(given(np.full(90, 0.5), [1, 0] * 20, np.arange(40)))
    assert reason_words(alike.without_judge).startswith("the judge's verdicts are all alike")


def test_under_twenty_prompts_nothing_is_said() -> None:
    found = ppi_estimate(given(np.linspace(0, 1, 90), [1] * 19, np.arange(19)))
    assert found.ppi.value is None
    assert reason_words(found.undefined).startswith("too few prompts with votes and verdicts: 19")
    assert ppi_estimate(given([], [], np.zeros(0, dtype=int))).undefined


def test_few_people_have_no_interval_unless_only_they_are_asked_about() -> None:
    rng = np.random.default_rng(5)
    chance = rng.random(300)
    votes = given(chance, rng.random(60) < chance[:60], np.arange(60), np.zeros(60, dtype=int))
    found = ppi_estimate(votes)
    assert found.ppi.value is not None
    assert (found.ppi.low, found.half, found.more(), found.votes_needed(0.1)) == (None,) * 4
    assert reason_words(found.ppi.no_interval).startswith("too few people: 1")
    assert ppi_estimate(votes, people_matter=False).ppi.low is not None


def test_votes_of_one_mind_still_have_some_width() -> None:
    found = ppi_estimate(given(np.linspace(0, 1, 200), np.ones(25), np.arange(25)))
    assert found.ppi.value - found.ppi.low > 0.05


def test_more_votes_buy_what_they_are_said_to() -> None:
    world = World(pairs=20_000, sampled=100, of_people=0.0)
    votes = simulated(np.random.default_rng(11), world, "75 %")
    found = ppi_estimate(votes, people_matter=False)
    needed = found.votes_needed(0.05)
    assert found.half - found.more(needed - 100) == pytest.approx(0.05, abs=1e-4)
    then = simulated(np.random.default_rng(12), replace(world, sampled=needed), "75 %")
    assert ppi_estimate(then, people_matter=False).half == pytest.approx(0.05, abs=0.004)
    assert 0 < found.more() < found.more(10)
    # People who differ are not made more by votes.
    few = World(sampled=900, people=6, of_people=1.0)
    assert ppi_estimate(simulated(np.random.default_rng(1), few, "75 %")).votes_needed(0.02) is None


def test_strata_sampled_unevenly_are_weighted_back() -> None:
    inside, value, mixed = 0, [], []
    for run in range(RUNS):
        rng = np.random.default_rng([3, run])
        stratum = (np.arange(1_000) < 200).astype(np.int64)
        chance = expit(np.where(stratum, 1.5, -1.0) + rng.normal(size=1_000))
        parts = [start + rng.permutation(size)[:60] for start, size in ((0, 200), (200, 800))]
        pair = np.concatenate(parts)
        score = rng.random(len(pair)) < chance[pair]
        judge = np.clip(chance + 0.2, 0, 1)  # too high
        found = ppi_estimate(given(judge, score, pair, stratum=stratum), people_matter=False)
        plain = ppi_estimate(given(judge, score, pair), people_matter=False)
        truth = chance.mean()
        value.append(found.ppi.value - truth)
        mixed.append(plain.people.value - truth)
        inside += found.ppi.low <= truth <= found.ppi.high
    assert np.mean(value) == pytest.approx(0.0, abs=0.01)
    assert np.mean(mixed) > 0.1
    assert inside / RUNS > 0.935


def test_a_stratum_nobody_voted_on_could_be_anything() -> None:
    rng = np.random.default_rng(4)
    chance = rng.random(1_000)
    score, pair = rng.random(300) < chance[:300], np.arange(300)
    stratum = (np.arange(1_000) >= 900).astype(np.int64)
    found = ppi_estimate(given(chance, score, pair, stratum=stratum), people_matter=False)
    assert found.n_missing == 1
    assert found.ppi.high - found.ppi.low == pytest.approx(2 * found.half + 0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": [0.5, 1.5]},
        {"score": [0.3]},
        {"pair": [2]},
        {"person": [1, 2]},
        {"prompt": [1]},
        {"stratum": np.array([1])},
        {"stratum": np.array([0, 1]), "prompt": [0, 0]},
    ],
)
def test_what_cannot_be_votes_is_refused(wrong: dict[str, Any]) -> None:
    row: dict[str, Any] = {"verdict": [0.5, 0.5], "score": [1], "pair": [0]}
    with pytest.raises(ValueError, match=r"verdict|score|pair|person|prompt|stratum"):
        ppi_estimate(given(**(row | wrong)))
