"""What agreement implies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.agreement import percent_agreement
from measures.ceiling import ANCHORS, ceiling_from_agreement, decided_ceiling
from tests.measures.crowds import crowd


@given(st.floats(0.5, 1))
def test_annotators_of_the_implied_accuracy_would_agree_just_as_often(accuracy):
    agreement = accuracy**2 + (1 - accuracy) ** 2
    ceiling = ceiling_from_agreement(min(1.0, max(0.5, agreement)))
    # Near one half the square root magnifies rounding: compare what it solves for.
    implied = ceiling.annotator_accuracy
    assert implied**2 + (1 - implied) ** 2 == pytest.approx(agreement, abs=1e-12)
    assert implied == pytest.approx(accuracy, abs=1e-7)


@given(st.lists(st.floats(0.5, 1), min_size=1, max_size=30))
def test_pairs_of_any_mix_of_difficulty_have_their_ceiling_in_the_range(chances):
    """Someone who always gives the better answer is right in the mean chance of a single vote."""
    right = np.array(chances)
    ceiling = ceiling_from_agreement(float(np.mean(right**2 + (1 - right) ** 2)))
    assert ceiling.low - 1e-9 <= right.mean() <= ceiling.high + 1e-9


def test_a_simulated_crowd_reveals_the_accuracy_it_was_made_with():
    measured = percent_agreement(crowd(1, 20_000, 5, 0.8)).value
    assert ceiling_from_agreement(measured).annotator_accuracy == pytest.approx(0.8, abs=0.01)


def test_full_agreement_and_coin_flips_have_the_obvious_ceilings():
    sure, flips = ceiling_from_agreement(1.0), ceiling_from_agreement(0.5)
    assert (sure.low, sure.high) == (1.0, 1.0)
    assert (flips.low, flips.high) == (0.5, 0.5)


def test_agreement_under_one_half_implies_nothing_and_says_why():
    ceiling = ceiling_from_agreement(0.42)
    assert (ceiling.annotator_accuracy, ceiling.low, ceiling.high) == (None, None, None)
    assert ceiling.undefined.startswith("agreement is 42.0%, under one half")


@pytest.mark.parametrize("impossible", [-0.1, 1.1, float("nan")])
def test_an_agreement_that_is_no_share_is_refused(impossible):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ceiling_from_agreement(impossible)


def test_every_published_anchor_is_a_share_with_a_source():
    assert len({anchor.name for anchor in ANCHORS}) == len(ANCHORS)
    for anchor in ANCHORS:
        assert 0.5 < anchor.agreement < 1
        assert anchor.margin is None or 0 < anchor.margin < 0.1
        assert anchor.source[-4:].isdigit()


def crowd_twice(*, spread, size, least, n=200_000, seed=3):
    """Pairs whose true shares are Beta(spread, spread), voted on by one crowd and then by another:
    (votes for the label, votes against, labels that the shares support, labels repeated)."""
    rng = np.random.default_rng(seed)
    share = rng.beta(spread, spread, n)
    first, second = rng.binomial(size, share), rng.binomial(size, share)
    kept = np.maximum(first, size - first) >= least
    share, first, second = share[kept], first[kept], second[kept]
    for_a = first * 2 > size
    won = np.where(for_a, first, size - first)
    alike = np.where(second * 2 == size, 0.5, (second * 2 > size) == for_a)
    return won, size - won, float(((share > 0.5) == for_a).mean()), float(alike.mean())


@pytest.mark.parametrize(
    ("spread", "size", "least"), [(1, 5, 3), (2, 5, 4), (0.4, 3, 2), (1, 4, 3)]
)
def test_a_second_crowd_decides_alike_as_often_as_the_ceiling_says(spread, size, least):
    won, lost, supported, alike = crowd_twice(spread=spread, size=size, least=least)
    agreement = (spread + 1) / (2 * spread + 1)
    ceiling = decided_ceiling(won, lost, agreement=agreement)
    assert ceiling.n_pairs == len(won)
    assert ceiling.again == pytest.approx(alike, abs=0.005)
    assert ceiling.best == pytest.approx(supported, abs=0.005)
    assert ceiling.again < ceiling.best < 1


def test_the_agreement_behind_a_share_is_the_one_that_two_voters_show():
    """The formula for the spread, by drawing two voters."""
    rng = np.random.default_rng(5)
    share = rng.beta(1.5, 1.5, 400_000)
    one, other = rng.random(len(share)) < share, rng.random(len(share)) < share
    assert (one == other).mean() == pytest.approx(2.5 / 4, abs=0.003)


def test_pairs_of_which_nobody_disagreed_are_decided_alike_for_ever():
    ceiling = decided_ceiling([5, 3], [0, 0], agreement=1.0)
    assert ceiling.again == pytest.approx(1, abs=1e-5)
    assert ceiling.best == pytest.approx(1, abs=1e-5)


def test_pairs_decided_by_more_votes_have_a_higher_ceiling():
    close = decided_ceiling([3] * 9, [2] * 9, agreement=0.7)
    clear = decided_ceiling([5] * 9, [0] * 9, agreement=0.7)
    assert close.again < clear.again
    assert close.best < clear.best


def test_crowds_like_coins_and_pairs_without_votes_have_no_ceiling_and_say_why():
    coins = decided_ceiling([3], [2], agreement=0.5)
    assert (coins.again, coins.best) == (None, None)
    assert "no more often than coins" in coins.undefined
    nothing = decided_ceiling([0], [0], agreement=0.7)
    assert nothing.n_pairs == 0
    assert "no pair" in nothing.undefined
