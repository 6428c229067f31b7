"""What Concord decides by default, on crowds with a known truth and on real ones."""

from dataclasses import replace

import numpy as np
import pytest

from measures.consensus import compare, majority, recommended, votes_from, wawa
from measures.consensus.choosing import _chosen
from tests.measures.consensus.crowds import accuracy, coins, people, real_crowd, simulated


def test_on_rte_the_default_is_as_good_as_the_best_published():
    """Gold independent of the votes: majority 89.69, Dawid–Skene 92.75, MACE 92.38."""
    votes, gold = real_crowd("rte")
    found = compare(votes)
    scores = {method: accuracy(fit.posteriors, gold) for method, fit in found.fits.items()}
    scores |= {"majority": accuracy(majority(votes).shares, gold), "reference": 92.75}
    assert scores["majority"] == pytest.approx(89.69, abs=0.01)
    assert accuracy(recommended(votes, found).posteriors, gold) >= max(scores.values()) - 0.5


def test_on_the_argument_pairs_the_default_is_not_below_majority():
    """Gold derived from the votes: majority 90.73, plain Dawid–Skene 85.94."""
    votes, gold = real_crowd("ukp")
    assert accuracy(majority(votes).shares, gold) == pytest.approx(90.73, abs=0.01)
    assert accuracy(recommended(votes).posteriors, gold) >= 90.73


@pytest.mark.parametrize("seed", range(3))
def test_on_the_argument_pairs_with_fewer_votes_the_default_keeps_up_with_majority(seed):
    votes, gold = real_crowd("ukp")
    some = votes.subset(np.random.default_rng(seed).random(len(votes)) < 0.7)
    default = accuracy(recommended(some).posteriors, gold)
    assert default >= accuracy(majority(some).shares, gold) - 0.5


def left_and_right(n: int) -> np.ndarray:
    """(n, 2, 2) of people of whom half prefer A and half B when unsure."""
    left = np.array([[0.92, 0.08], [0.45, 0.55]])
    return np.stack([left if i % 2 else left[::-1, ::-1] for i in range(n)])


LIARS = coins(*[0.85] * 25, *[0.15] * 5)
CROWDS = {
    "dense": (people(1, 40), {}),
    "sparse": (people(2, 1_600), {"n_items": 1_600}),
    "three votes": (people(3, 60), {"per_item": 3}),
    "ten votes": (people(4, 60), {"per_item": 10, "n_items": 500}),
    "spammers 40 %": (np.concatenate([people(5, 30), coins(*[0.5] * 20)]), {}),
    "ties": (people(6, 40, k=3), {"balance": (0.4, 0.4, 0.2)}),
    "ties and both bad": (people(7, 40, k=4), {"balance": (0.4, 0.4, 0.12, 0.08)}),
    "mostly A": (people(8, 40), {"balance": (0.9, 0.1)}),
    "sides": (left_and_right(30), {}),
    "liars": (LIARS, {}),
    "experts and guessers": (coins(*[0.97] * 6, *[0.58] * 24), {}),
}


@pytest.mark.parametrize("name", CROWDS)
def test_the_default_is_near_the_best_on_crowds_it_has_never_seen(name):
    matrices, shape = CROWDS[name]
    regrets = []
    for seed in (51, 52):
        votes, truth = simulated(seed, matrices, **{"n_items": 1_500, **shape})
        found = compare(votes)
        scores = [accuracy(fit.posteriors, truth) for fit in found.fits.values()]
        scores += [accuracy(counted(votes).shares, truth) for counted in (majority, wawa)]
        regrets.append(max(scores) - accuracy(recommended(votes, found).posteriors, truth))
    assert np.mean(regrets) <= 0.5


def test_another_model_is_recommended_once_it_is_clearly_ahead():
    """Sparse people who differ in nothing but accuracy, over four choices: one coin is enough."""
    votes, _ = simulated(53, people(53, 400, k=4), n_items=1_500)
    found = compare(votes)
    assert found.method == "one_coin"
    assert "better than Dawid–Skene" in found.reason


def test_a_lead_within_the_noise_changes_nothing():
    votes, _ = simulated(54, people(54, 40), n_items=600)
    checks = compare(votes).checks
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, size=checks["mace"].n_votes)
    noisy = checks["dawid_skene"].losses - 0.006 + noise - noise.mean()
    rival = replace(checks["mace"], losses=noisy)
    method, _ = _chosen({"dawid_skene": checks["dawid_skene"], "mace": rival})
    assert method == "dawid_skene"


def test_few_votes_are_counted():
    votes, _ = simulated(55, people(55, 8), n_items=35)
    found = recommended(votes)
    assert found.method == "votes"
    assert found.reason.startswith("counting votes: 175 votes")
    assert found.posteriors == pytest.approx(majority(votes).shares)


def test_where_nobody_can_be_told_apart_from_a_coin_counting_stands():
    """Laplace's rule knows as much about pure noise as any model."""
    votes, _ = simulated(56, coins(*[0.5] * 30), n_items=600)
    found = compare(votes)
    gain = found.checks["dawid_skene"].gain
    assert (found.method == "votes") == (gain.value <= 0)


def test_a_tie_between_alike_people_stays_undecided():
    votes = votes_from(
        np.append(np.repeat(np.arange(150), 2), [150, 150]),
        np.tile([0, 1], 151),
        np.append(np.repeat(np.arange(150) % 2, 2), [0, 1]),
        n_items=152,
    )
    found = recommended(votes)
    assert found.method != "votes"
    assert found.winner[150] == -1  # one vote each
    assert found.winner[151] == -1  # none at all
    assert (found.winner[:150] == np.arange(150) % 2).all()


@pytest.mark.parametrize("n_items", [0, 2])
def test_no_votes_are_undecided(n_items):
    empty = np.zeros(0, dtype=int)
    found = recommended(votes_from(empty, empty, empty, n_items=n_items))
    assert (found.method, found.winner.tolist()) == ("votes", [-1] * n_items)


def test_a_model_is_proposed_from_five_hundred_votes_once_its_check_passes():
    votes, _ = simulated(57, people(57, 20), n_items=300)
    enough, fewer = compare(votes), compare(votes.subset(votes.items < 90))
    assert enough.trusted
    assert enough.proposed
    assert fewer.trusted
    assert not fewer.proposed


def test_a_model_that_fails_its_check_is_not_proposed():
    votes, _ = real_crowd("ukp")
    found = compare(votes)
    assert found.method != "votes"
    assert not found.trusted
    assert not found.proposed


def test_overruling_clear_leads_is_said():
    """Four who nearly always agree against sixteen who mostly guess: experts, or a clique."""
    votes, _ = simulated(58, coins(*[0.98] * 4, *[0.51] * 16), n_items=600)
    found = compare(votes)
    assert found.overruled > 0.05
    assert "votes cannot tell, gold comparisons can" in found.caution
    calm, _ = simulated(59, coins(*[0.85] * 20), n_items=600)
    assert compare(calm).caution is None
