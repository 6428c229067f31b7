"""The judges of the benchmark of judges are as good as their names say."""

import numpy as np
import pytest

from benchmarks.judges import World, known, simulated

WORLD = World()


@pytest.mark.parametrize(("judge", "agreement"), [("66 %", 0.66), ("75 %", 0.75)])
def test_a_judge_agrees_with_as_many_votes_as_its_name_says(judge: str, agreement: float) -> None:
    found, rho2 = known(judge, WORLD)
    assert found == pytest.approx(agreement, abs=0.005)
    assert rho2 == pytest.approx((2 * agreement - 1) ** 2, abs=0.02)


def test_the_truth_is_the_mean_of_many_votes() -> None:
    world = World(pairs=100_000, sampled=100_000, people=100_000)
    votes = simulated(np.random.default_rng(1), world, "perfect")
    assert votes.score.mean() == pytest.approx(world.truth, abs=0.005)
    assert votes.verdict.mean() == pytest.approx(world.truth, abs=0.005)


def test_people_vote_about_equally_often_and_never_twice_on_a_pair() -> None:
    world = World(pairs_each=2, votes_each=3)
    votes = simulated(np.random.default_rng(2), world, "perfect")
    assert np.ptp(np.bincount(votes.person)) <= 1
    assert len(set(zip(votes.pair.tolist(), votes.person.tolist(), strict=True))) == 300
    assert len(np.unique(votes.prompt[votes.pair])) == 50
