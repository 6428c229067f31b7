"""One vote each on more pairs, or several on fewer? Pools whose answer is planted."""

from dataclasses import replace

import numpy as np
import pytest

from measures.depth import (
    WAYS,
    Cell,
    Depth,
    _dealt,
    _Play,
    labelled_share,
    replay_depth,
)
from measures.estimate import Interval
from measures.selection import LEAST_PAIRS, Pool

RIDGES = (0.1, 1.0, 3.0, 10.0, 30.0, 300.0)
POINTS = (250, 500)
BY_NAME = {way.name: way for way in WAYS}


def pool_make(seed: int, *, n: int = 1_000, votes: int = 4, pull: float = 1.0) -> Pool:
    """Independent pairs whose p = σ(pull · u), u of spread 1; 50 groups that mean nothing."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(n, 12)), rng.normal(size=12)
    p = 1 / (1 + np.exp(-pull * x @ weights / np.linalg.norm(weights)))
    group = np.arange(n) % 50
    return Pool(x, rng.binomial(votes, p), np.full(n, votes), group, group)


@pytest.mark.parametrize("seed", [0, 1])
def test_where_people_hardly_agree_one_vote_each_is_never_worse(seed: int) -> None:
    """p near ½ and independent pairs: a fifth vote on a pair tells less than a first on another."""
    found = replay_depth(pool_make(seed, pull=0.8), ridges=RIDGES, points=POINTS)
    assert found.verdict == "breadth"
    assert (found.deepest, found.n_deep, found.points) == (4, 1_000, POINTS)
    last = {cell.way: cell for cell in found.cells if cell.votes == 500}
    assert "better" not in {cell.verdict for cell in found.cells}
    for name in ("majority_4", "unanimous_4"):
        assert last["single"].log_loss < last[name].log_loss
    assert [last[way.name].pairs for way in WAYS] == [500, 166, 166, 125, 125]


def test_pairs_that_are_asked_once_each_are_as_many_as_the_pool_has() -> None:
    found = replay_depth(pool_make(2, n=700), ridges=RIDGES)
    assert found.points == (250, 500)
    assert 500 <= found.room <= 525, "a quarter of the pairs is held out"


def test_too_few_pairs_groups_or_votes_are_refused_with_the_number_needed() -> None:
    pool = pool_make(0)
    few = pool.only(np.arange(1_000) < 99)
    assert replay_depth(few).refused == f"few_voted_pairs n=99 least={LEAST_PAIRS}"
    assert replay_depth(replace(pool, group=np.arange(1_000) % 2)).refused.startswith("few_groups")
    single = replace(pool, votes=np.ones(1_000, dtype=int), first=np.minimum(pool.first, 1))
    assert replay_depth(single).refused == f"few_deep_pairs n=0 depth=3 least={LEAST_PAIRS}"


def test_pairs_that_got_more_votes_since_the_first_differed_are_not_replayed() -> None:
    pool = pool_make(3)
    further = np.arange(1_000) < 600
    chosen = replace(pool, votes=np.where(further, 4, 2), first=np.where(further, pool.first, 1))
    assert replay_depth(chosen).refused == "deep_pairs_chosen n=600 depth=3 twice=1000"
    third = replace(pool, votes=np.where(further, 4, 3), first=np.minimum(pool.first, 3))
    assert replay_depth(third, ridges=RIDGES, points=(250,)).deepest == 3
    measured = replace(pool, votes=np.where(further, 4, 1), first=np.minimum(pool.first, 1))
    found = replay_depth(measured, ridges=RIDGES, points=(250,))
    assert (found.deepest, found.n_deep) == (4, 600), "single votes elsewhere do not matter"


def test_a_pool_with_few_distinct_pairs_is_said_to_be_one() -> None:
    pool = pool_make(4)
    copies = pool.only(np.arange(1_000) % 40 == np.arange(1_000))
    rows = np.arange(1_000) % 40
    turned = np.where(np.arange(1_000) % 2, -1, 1)[:, None]
    many = replace(pool, x=copies.x[rows] * turned)
    assert replay_depth(many).refused == f"few_distinct_pairs n=40 least={LEAST_PAIRS}"


def test_votes_that_say_nothing_and_a_grid_of_weak_regularisers_are_refused() -> None:
    pool = pool_make(5)
    coins = np.random.default_rng(6).binomial(4, 0.5, size=1_000)
    found = replay_depth(replace(pool, first=coins), ridges=RIDGES, points=(500,))
    assert found.refused == "no_signal_to_compare"
    weak = replay_depth(pool, ridges=(1e-4, 1e-3, 1e-2), points=(500,))
    assert weak.refused == "single_under_tuned ridge=0.01"
    assert (weak.verdict, weak.cells) == ("refused", ())


def test_fewer_than_twenty_seeds_are_an_error() -> None:
    with pytest.raises(ValueError, match="20 seeds"):
        replay_depth(pool_make(0), seeds=5)


def test_the_same_votes_give_the_same_replay() -> None:
    pool = pool_make(7, n=600)
    one, other = (replay_depth(pool, ridges=RIDGES, points=(250,)) for _ in range(2))
    assert one == other


def test_no_group_is_on_two_sides_and_the_halves_share_nothing() -> None:
    pool = pool_make(8)
    play = _Play(pool, 0, 4)
    sides = [set(pool.group[play.train]), *(set(pool.group[rows]) for rows in play.tests)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 50
    assert sum(play.sizes) >= 250


def test_votes_are_dealt_as_they_were_cast_and_none_twice() -> None:
    rng = np.random.default_rng(0)
    first, votes = np.array([0, 5, 2] * 2_000), np.array([5, 5, 4] * 2_000)
    cast = _dealt(first, votes, 4, rng)
    assert not cast[::3].any()
    assert cast[1::3].all()
    assert (cast[2::3].sum(axis=1) == 2).all(), "all four votes of the third are dealt"
    assert np.allclose(cast[2::3].mean(axis=0), 0.5, atol=0.05), "in any order"


def test_a_way_pays_for_what_it_throws_away() -> None:
    """Ten pairs with 4:0, ten with 2:2, ten with 3:1, by hand."""
    play = object.__new__(_Play)
    play.x = np.arange(30, dtype=float)[:, None] + 1
    kinds = ([1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0])
    play.cast = np.array([kinds[k % 3] for k in range(30)], dtype=float)
    rows, weights = play.labelled(BY_NAME["majority_4"], 120)
    assert (len(rows), weights.tolist()) == (20, [1.0] * 20)
    rows, _ = play.labelled(BY_NAME["unanimous_4"], 120)
    assert len(rows) == 10
    assert (rows > 0).all()
    rows, weights = play.labelled(BY_NAME["soft_3"], 9)
    assert rows[:, 0].tolist() == [1, 2, 3, -2], "both answers of a pair that is not unanimous"
    assert weights.tolist() == pytest.approx([1, 2 / 3, 1, 1 / 3])
    rows, _ = play.labelled(BY_NAME["single"], 7)
    assert len(rows) == 7


@pytest.mark.parametrize("agreement", [0.55, 0.62, 0.8, 0.95])
def test_how_many_pairs_get_a_label_follows_from_agreement(agreement: float) -> None:
    """Beside votes drawn from the Beta by which two of them agree so often."""
    rng = np.random.default_rng(1)
    s = (1 - agreement) / (2 * agreement - 1)
    p = rng.beta(s, s, size=200_000)
    assert np.mean(p**2 + (1 - p) ** 2) == pytest.approx(agreement, abs=0.003)
    four = rng.binomial(4, p)
    unanimous, majority = np.isin(four, (0, 4)).mean(), (four != 2).mean()
    assert labelled_share(BY_NAME["unanimous_4"], agreement) == pytest.approx(unanimous, abs=0.005)
    assert labelled_share(BY_NAME["majority_4"], agreement) == pytest.approx(majority, abs=0.005)
    assert labelled_share(BY_NAME["majority_3"], agreement) == 1
    assert labelled_share(BY_NAME["majority_4"], 0.5) is None


def test_the_verdict_is_that_of_the_most_votes() -> None:
    def cell(votes: int, low: float, high: float) -> Cell:
        above = Interval(value=(low + high) / 2, low=low, high=high, n=20)
        return Cell("soft_3", votes, votes // 3, 1, 0.6, 0.6, 0, (1, 1), log_loss_above=above)

    early, worse, better = cell(250, -2, -1), cell(500, 1, 2), cell(500, -2, -1)
    unsure = cell(500, -1, 1)
    found = Depth(1, 1, 1, 20, points=(250, 500), cells=(early, worse))
    assert [one.verdict for one in (early, worse, unsure)] == ["better", "worse", "no_evidence"]
    assert found.verdict == "breadth"
    assert replace(found, cells=(worse, better)).verdict == "depth"
    assert replace(found, cells=(early, unsure)).verdict == "no_evidence"
