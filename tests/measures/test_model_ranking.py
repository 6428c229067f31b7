"""Which model is better: planted strengths, planted habits, and when nothing can be said."""

import itertools
from typing import Any

import choix
import evalica
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from measures import model_ranking
from measures.model_ranking import (
    CONTROLS,
    ModelVotes,
    bradley_terry,
    meetings,
    two_way_rate,
    win_rates,
)

STRENGTHS = np.array([0.7, 0.2, -0.2, -0.7])


def crowd(
    seed: int,
    *,
    prompts: int = 120,
    people: int = 12,
    each: int = 2,
    by_prompt: float = 0.5,
    by_person: float = 0.4,
    left: float = 0.0,
    longer: float = 0.0,
    uneven: bool = False,
) -> ModelVotes:
    """Votes on a pair of models for each prompt; tastes differ by prompt and by person.

    left, longer: what the habits add to the log odds. uneven: the stronger model stands left three
    times in four and writes longer answers.
    """
    draw = np.random.default_rng(seed)
    pairs = np.array(list(itertools.permutations(range(len(STRENGTHS)), 2)))
    prompt = np.repeat(np.arange(prompts), each)
    met = pairs[draw.integers(0, len(pairs), prompts)]
    gap = STRENGTHS[met[:, 0]] - STRENGTHS[met[:, 1]]
    length = (draw.normal(0, 0.5, prompts) + uneven * 0.6 * gap)[prompt]
    first, second = met[prompt].T
    person = draw.integers(0, people, len(prompt))
    share = np.where(uneven, np.where(gap[prompt] > 0, 0.75, 0.25), 0.5)
    side = np.where(draw.random(len(prompt)) < share, 0.5, -0.5)
    of_prompt = draw.normal(0, by_prompt, (prompts, len(STRENGTHS)))
    of_person = draw.normal(0, by_person, (people, len(STRENGTHS)))
    taste = STRENGTHS + of_prompt[prompt] + of_person[person]
    rows = np.arange(len(prompt))
    odds = taste[rows, first] - taste[rows, second] + left * side + longer * length
    score = (draw.random(len(prompt)) < expit(odds)).astype(float)
    kind = draw.random(len(prompt))
    score[kind < 0.1] = 0.5
    score[kind > 0.95] = np.nan
    return ModelVotes(len(STRENGTHS), first, second, score, prompt, person, side, length)


def few(rows: list[tuple[int, int, float]], n_models: int, repeat: int = 1) -> ModelVotes:
    """Votes (first, second, score), each by six people on prompts of its own."""
    table = np.array([row for row in rows for _ in range(repeat)])
    n = len(table)
    first, second = table[:, :2].astype(int).T
    zeros = np.zeros(n)
    return ModelVotes(
        n_models, first, second, table[:, 2], np.arange(n), np.arange(n) % 6, zeros, zeros
    )


def strengths(order: model_ranking.Order) -> np.ndarray:
    return np.array([s.value for s in sorted(order.strengths, key=lambda s: s.model)])


@pytest.mark.parametrize("controls", [(), CONTROLS])
def test_strengths_are_those_of_a_direct_maximum_likelihood(controls: tuple[str, ...]) -> None:
    votes = crowd(3, left=0.4, longer=0.5)
    step = model_ranking.LENGTH_STEP
    clear = votes.only(~np.isnan(votes.score))
    terms = {"side": clear.side, "length": np.round(clear.length / step) * step}

    def loss(theta: np.ndarray) -> float:
        s = np.append(theta[:3], -theta[:3].sum())
        odds = s[clear.first] - s[clear.second]
        for name, value in zip(controls, theta[3:], strict=True):
            odds = odds + value * terms[name]
        lost = -np.logaddexp(0, -odds) * clear.score - np.logaddexp(0, odds) * (1 - clear.score)
        return -float(lost.sum())

    best = minimize(loss, np.zeros(3 + len(controls)), method="BFGS", options={"gtol": 1e-7}).x
    order = bradley_terry(votes, controls=controls, replicates=2)
    assert strengths(order)[:3] == pytest.approx(best[:3], abs=1e-5)
    assert strengths(order).sum() == pytest.approx(0, abs=1e-12)
    assert [c.value for c in order.controls] == pytest.approx(list(best[3:]), abs=1e-5)


def test_planted_strengths_lie_in_the_intervals_of_nine_crowds_in_ten() -> None:
    """What is estimated is the mean over prompts and people: that of a huge crowd."""
    truth = strengths(bradley_terry(crowd(1, prompts=60_000, people=5_000), replicates=2))
    hits, widths = [], []
    for seed in range(60):
        order = bradley_terry(crowd(seed), replicates=60, seed=seed)
        assert order.reason == ""
        hits += [s.low <= truth[s.model] <= s.high for s in order.strengths]
        widths += [s.high - s.low for s in order.strengths]
    assert 0.90 <= np.mean(hits) <= 0.995
    assert np.mean(widths) < 1.3  # and they say something


def test_rates_lie_in_their_intervals_though_people_differ_in_taste() -> None:
    hits = []
    for seed in range(200):
        draw = np.random.default_rng(seed)
        prompt, person = np.repeat(np.arange(80), 5), draw.integers(0, 8, 400)
        taste = draw.normal(0, 1, 80)[prompt] + draw.normal(0, 0.7, 8)[person]
        rate = two_way_rate((draw.random(400) < expit(taste)).astype(float), prompt, person)
        hits.append(rate.low <= 0.5 <= rate.high)
    assert np.mean(hits) >= 0.9  # independent votes would be believed in 0.63


def test_habits_are_removed_where_they_are_controlled_for_and_not_otherwise() -> None:
    fair = strengths(bradley_terry(crowd(7, prompts=40_000, people=2_000), replicates=2))
    votes = crowd(7, prompts=40_000, people=2_000, left=0.8, longer=1.0, uneven=True)
    plain = strengths(bradley_terry(votes, replicates=2))
    order = bradley_terry(votes, controls=CONTROLS, replicates=2)
    assert np.abs(plain - fair).max() > 0.3
    assert np.abs(strengths(order) - fair).max() < 0.06
    side, length = order.controls
    assert side.value == pytest.approx(0.8 * 0.8, abs=0.12)  # ties and tastes pull it to 0
    assert length.value == pytest.approx(1.0 * 0.8, abs=0.15)


def test_a_pair_counts_wins_ties_and_both_bad_by_hand() -> None:
    rows = [(0, 1, 1.0)] * 3 + [(1, 0, 1.0)] * 2 + [(1, 0, 0.5), (0, 1, np.nan)]
    (pair,) = meetings(few(rows, 2, repeat=10))
    assert (pair.first, pair.second) == (0, 1)
    assert (pair.wins, pair.losses, pair.ties, pair.both_bad) == (30, 20, 10, 10)
    assert pair.rate.value == pytest.approx(35 / 60)
    assert pair.rate.n == 60
    assert pair.rate.low < 35 / 60 < pair.rate.high
    first, second = win_rates(few(rows, 2, repeat=10))
    assert first.value + second.value == pytest.approx(1)


def test_two_models_have_the_odds_of_their_win_rate() -> None:
    order = bradley_terry(few([(0, 1, 1.0)] * 3 + [(0, 1, 0.0)], 2, repeat=10), replicates=20)
    best, other = order.strengths
    assert best.value - other.value == pytest.approx(np.log(3))
    assert (best.best, best.worst, other.best) == (1, 1, 2)


def test_models_that_cannot_be_told_apart_share_their_ranks() -> None:
    order = bradley_terry(few([(0, 1, 1.0), (0, 1, 0.0)] * 20 + [(0, 1, 1.0)], 2), replicates=50)
    assert [(s.best, s.worst) for s in order.strengths] == [(1, 2), (1, 2)]


UNEVEN: dict[str, tuple[list[tuple[int, int, float]], int]] = {
    "no_votes": ([(0, 1, np.nan)], 2),
    "not_connected": ([(0, 1, 1.0), (0, 1, 0.0), (2, 3, 1.0), (2, 3, 0.0)], 4),
    "separated": ([(0, 1, 1.0), (1, 2, 1.0), (1, 2, 0.0)], 3),
}


@pytest.mark.parametrize("reason", UNEVEN)
def test_what_cannot_be_told_is_refused_with_a_reason(reason: str) -> None:
    rows, n_models = UNEVEN[reason]
    order = bradley_terry(few(rows, n_models, repeat=30))
    assert (order.reason, order.strengths) == (reason, [])


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [({"people": 4}, "too_few_people"), ({"prompts": 18, "each": 8}, "too_few_prompts")],
)
def test_few_people_or_prompts_give_numbers_without_intervals(
    sizes: dict[str, Any], reason: str
) -> None:
    votes = crowd(2, **sizes)
    order = bradley_terry(votes)
    assert order.reason == reason
    assert order.strengths
    assert {s.low for s in order.strengths} == {None}
    assert [s.best for s in order.strengths] == [1, 2, 3, 4]
    rate = win_rates(votes)[0]
    assert rate.value is not None
    assert (rate.low, rate.reason) == (None, reason)


def test_the_same_seed_gives_the_same_intervals() -> None:
    votes = crowd(4)
    assert bradley_terry(votes, replicates=30) == bradley_terry(votes, replicates=30)


def test_strengths_are_those_of_two_other_libraries() -> None:
    votes = crowd(7, prompts=300)
    clear = votes.only(~np.isnan(votes.score))
    strengths = {s.model: s.value for s in bradley_terry(votes).strengths}
    ours = np.array([strengths[k] for k in range(len(STRENGTHS))])

    wins: list[tuple[int, int]] = []  # a tie is one win each way, where a win counts twice
    for first, second, score in zip(clear.first, clear.second, clear.score, strict=True):
        ahead, behind = (int(first), int(second))[:: 1 if score > 0 else -1]
        wins += [(ahead, behind), (ahead, behind) if score != 0.5 else (behind, ahead)]
    theirs = choix.opt_pairwise(len(STRENGTHS), wins, alpha=1e-9, tol=1e-10)
    assert ours == pytest.approx(theirs - theirs.mean(), abs=1e-3)

    winners = [
        evalica.Winner.Draw if s == 0.5 else evalica.Winner.X if s == 1 else evalica.Winner.Y
        for s in clear.score
    ]
    xs, ys = (list(map(str, side.tolist())) for side in (clear.first, clear.second))
    found = evalica.bradley_terry(xs, ys, winners, tolerance=1e-10, limit=10_000).scores
    logs = np.log([found[str(k)] for k in range(len(STRENGTHS))])
    assert ours == pytest.approx(logs - logs.mean(), abs=1e-3)
