"""Before and after: a real gain is found, and a lucky second look is not taken for one."""

import numpy as np
import pytest

from measures.rounds import before_after, pair_agreement


def crowd(rng: np.random.Generator, p: np.ndarray, votes: int = 5) -> np.ndarray:
    """(n, 2) votes for A and B, where each vote is for A with chance p."""
    a = rng.binomial(votes, p)
    return np.column_stack([a, votes - a])


def disputed(rng: np.random.Generator, n: int = 1_500) -> tuple[np.ndarray, ...]:
    """Which comparisons of a project were contested, their true chances, and all first votes."""
    p = rng.beta(0.8, 0.8, n)
    first = crowd(rng, p)
    return first.min(axis=1) == 2, p, first  # 3 : 2


def test_agreement_by_hand() -> None:
    assert pair_agreement([[3, 2], [5, 0], [1, 0]])[:2] == pytest.approx([0.4, 1.0])
    assert np.isnan(pair_agreement([[1, 0]])[0])


def test_a_second_look_without_a_change_shows_a_rise_that_is_called_expected() -> None:
    rng = np.random.default_rng(11)
    hits, rises = 0, []
    for _ in range(60):
        sent, p, first = disputed(rng)
        found = before_after(first[sent], crowd(rng, p[sent]), project=first)
        assert found.difference.low > 0.05  # the rise that would be believed
        rises.append(found.after.value - found.expected)
        hits += found.beyond.low <= 0 <= found.beyond.high
    assert np.mean(rises) == pytest.approx(0.0, abs=0.02)
    assert hits >= 50


def asked_on(rng: np.random.Generator, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the first three votes, all votes), where up to five are asked for while none has three."""
    first = crowd(rng, p, 3)
    every = first.copy()
    for _ in range(2):
        wanting = every.max(axis=1) < 3
        every[wanting] += crowd(rng, p[wanting], 1)
    return first, every


def test_further_votes_where_the_first_differ_do_not_pass_for_a_rise() -> None:
    rng = np.random.default_rng(13)
    coins = np.full(20_000, 0.5)
    first, every = asked_on(rng, coins)
    assert pair_agreement(every).mean() == pytest.approx(0.5875, abs=0.01)  # 9 points too high
    assert pair_agreement(first).mean() == pytest.approx(0.5, abs=0.01)
    hits, rises = 0, []
    for _ in range(60):
        p = rng.beta(0.8, 0.8, 2_000)
        first, every = asked_on(rng, p)
        sent = every.min(axis=1) == 2  # contested or accepted by three to two
        again, _ = asked_on(rng, p[sent])
        found = before_after(first[sent], again, seen=every[sent], project=first)
        rises.append(found.after.value - found.expected)
        hits += found.beyond.low <= 0 <= found.beyond.high
    assert np.mean(rises) == pytest.approx(0.0, abs=0.015)
    assert hits >= 52


def test_a_guideline_that_helps_is_seen_beyond_what_chance_gives() -> None:
    rng = np.random.default_rng(12)
    sent, p, first = disputed(rng)
    clearer = np.where(p[sent] > 0.5, 0.95, 0.05)
    found = before_after(first[sent], crowd(rng, clearer), project=first)
    assert found.after.value == pytest.approx(1 - 2 * 0.95 * 0.05, abs=0.02)
    assert found.beyond.low > 0.15
    assert found.n == sent.sum()


def test_only_comparisons_with_two_votes_in_both_rounds_are_compared() -> None:
    found = before_after([[1, 1], [2, 0], [1, 1]], [[2, 0], [1, 0], [0, 0]])
    assert (found.n, found.before.value, found.after.value) == (1, 0.0, 1.0)
    assert found.expected is None
    assert "too few" in found.difference.no_interval


def test_before_any_new_votes_there_is_nothing_to_compare() -> None:
    found = before_after([[1, 1]], [[0, 0]], project=[[1, 1], [2, 0]])
    assert found.n == 0
    assert found.after.undefined
    assert found.expected is None
