"""Do margins mean what they claim?"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.agreement import percent_agreement
from measures.calibration import calibration, fit_temperature, randomise_orientation
from measures.ceiling import ceiling_from_agreement, decided_ceiling
from tests.measures.crowds import crowd


def honest(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Margins whose labels are drawn with exactly the probability they claim."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(0, 2, size=n)
    chance = np.array([1 / (1 + math.exp(-margin)) for margin in margins])
    return margins, (rng.random(n) < chance).astype(float)


def test_four_pairs_by_hand():
    # p = 0.8 for two pairs (one right), p = 0.2 for two (none): two bins.
    claim = math.log(4)
    result = calibration([claim, claim, -claim, -claim], [1, 0, 0, 0], bins=2)
    assert result.ece == pytest.approx((0.3 + 0.2) / 2)
    assert result.brier == pytest.approx((0.04 + 0.64 + 0.04 + 0.04) / 4)
    assert result.log_loss == pytest.approx(-(3 * math.log(0.8) + math.log(0.2)) / 4)
    assert [(bar.n, round(bar.predicted, 6), bar.observed) for bar in result.bins] == [
        (2, 0.2, 0.0),
        (2, 0.8, 0.5),
    ]


def test_an_honest_model_is_nearly_calibrated_and_fits_a_temperature_of_one():
    margins, labels = honest(1, 20_000)
    result = calibration(margins, labels)
    assert result.ece < 0.4 * math.sqrt(15 / 20_000)
    assert fit_temperature(margins, labels).value == pytest.approx(1, abs=0.04)


def test_margins_times_four_are_found_out_and_cooled_by_four():
    margins, labels = honest(2, 20_000)
    loud = calibration(4 * margins, labels)
    assert loud.ece > 0.05
    temperature = fit_temperature(4 * margins, labels).value
    assert temperature == pytest.approx(4, abs=0.16)
    cooled = calibration(4 * margins, labels, temperature=temperature)
    assert cooled.ece < 0.02
    assert cooled.log_loss < loud.log_loss
    assert cooled.brier < loud.brier


def test_no_other_temperature_has_a_smaller_log_loss():
    margins, labels = honest(3, 500)
    best = fit_temperature(3 * margins, labels).value
    losses = [
        calibration(3 * margins, labels, temperature=best * factor).log_loss
        for factor in (1, 0.97, 1.03, 0.5, 2)
    ]
    assert min(losses) == losses[0]


def test_showing_the_chosen_first_hides_what_a_random_orientation_shows():
    margins, labels = honest(4, 8_000)
    chosen_minus_rejected = np.where(labels == 1, margins, -margins)
    turned, first_chosen = randomise_orientation(chosen_minus_rejected, seed=5)
    assert set(np.unique(first_chosen)) == {0.0, 1.0}
    assert first_chosen.mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(8_000))
    assert np.array_equal(np.where(first_chosen == 1, turned, -turned), chosen_minus_rejected)
    assert calibration(turned, first_chosen).ece < 0.03
    # Unturned every label is 1: the same honest model looks far too timid.
    assert calibration(chosen_minus_rejected, np.ones(8_000)).ece > 0.2


def test_the_fifteen_bins_hold_equal_numbers():
    margins, labels = honest(6, 1_000)
    sizes = [bar.n for bar in calibration(margins, labels).bins]
    assert len(sizes) == 15
    assert sum(sizes) == 1_000
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 3.0]), min_size=15, max_size=60), st.randoms())
def test_equal_claims_share_a_bin_whatever_their_order(margins, random):
    labels = [float(random.random() < 0.5) for _ in margins]
    order = random.sample(range(len(margins)), len(margins))
    one = calibration(margins, labels)
    other = calibration([margins[i] for i in order], [labels[i] for i in order])
    assert one.ece == pytest.approx(other.ece)
    assert len(one.bins) <= len(set(margins))
    assert sum(bar.n for bar in one.bins) == len(margins)


def test_huge_margins_neither_overflow_nor_warn():
    result = calibration([1e5, -1e5] * 10, [1, 0] * 10)
    assert result.log_loss == 0
    assert calibration([1e5] * 20, [0.0] * 20).log_loss == pytest.approx(1e5)


def test_fewer_pairs_than_bins_are_undefined():
    result = calibration([0.1] * 14, [1.0] * 14)
    assert result.undefined == "few_for_bins n=14 bins=15"
    assert (result.ece, result.brier, result.log_loss, result.bins) == (None, None, None, ())


@pytest.mark.parametrize(
    ("margins", "labels", "reason"),
    [
        ([], [], "no_pairs"),
        ([1.0, -2.0], [0.0, 1.0], "margins_opposed"),
        ([0.0, 0.0], [0.0, 1.0], "margins_opposed"),
        ([1.0, -2.0], [1.0, 0.0], "margins_separate"),
        ([1e-9, -2e-9, 0.0], [1.0, 0.0, 1.0], "margins_separate"),
    ],
)
def test_a_temperature_that_does_not_exist_says_why(margins, labels, reason):
    fitted = fit_temperature(margins, labels)
    assert fitted.value is None
    assert fitted.undefined == reason


def test_the_temperature_scales_with_the_margins():
    margins, labels = honest(7, 2_000)
    once = fit_temperature(margins, labels).value
    for scale in (1e-6, 1e6):
        assert fit_temperature(scale * margins, labels).value == pytest.approx(
            scale * once, rel=1e-6
        )


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: calibration([math.nan] * 20, [1.0] * 20), "finite"),
        (lambda: calibration([1.0] * 20, [1.0] * 19), "one label per margin"),
        (lambda: calibration([1.0] * 20, [2.0] * 20), "between 0 and 1"),
        (lambda: calibration([1.0] * 20, [math.nan] * 20), "between 0 and 1"),
        (lambda: calibration([1.0] * 20, [1.0] * 20, temperature=0), "temperature"),
        (lambda: randomise_orientation([math.inf], seed=1), "finite"),
    ],
)
def test_input_that_makes_no_sense_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# What agreement implies.


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
    assert ceiling.undefined == "agreement_under_half agreement=0.42"


@pytest.mark.parametrize("impossible", [-0.1, 1.1, float("nan")])
def test_an_agreement_that_is_no_share_is_refused(impossible):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ceiling_from_agreement(impossible)


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
    assert coins.undefined.startswith("agreement_of_coins")
    nothing = decided_ceiling([0], [0], agreement=0.7)
    assert nothing.n_pairs == 0
    assert nothing.undefined == "no_decided_pair"


def test_margins_that_point_right_by_rounding_alone_have_no_temperature() -> None:
    assert fit_temperature([2.0000000000000004, 2.0], [1.0, 0.0]).value is None
