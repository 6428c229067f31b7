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
