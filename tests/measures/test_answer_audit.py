"""What "no bad one in n" allows to say, against numbers from other places."""

import math

import pytest
from scipy.stats import binom, binomtest

from measures.answer_audit import judged, worst_of
from measures.intervals import upper_bound


def test_60_clean_answers_say_under_five_percent() -> None:
    found = upper_bound(0, 60)
    assert (found.value, found.low, found.n) == (0.0, 0.0, 60)
    assert found.high == pytest.approx(1 - math.exp(math.log(0.05) / 60))
    assert 0.048 < found.high < 0.05


def test_59_clean_answers_do_not() -> None:
    assert 0.049 < upper_bound(0, 59).high < 0.0496
    assert upper_bound(0, 58).high > 0.05


@pytest.mark.parametrize(("bad", "n"), [(1, 60), (0, 60), (3, 20), (19, 20), (7, 300)])
def test_the_bound_is_scipys_and_the_share_that_is_just_refused(bad: int, n: int) -> None:
    found = upper_bound(bad, n)
    exact = binomtest(bad, n, alternative="less").proportion_ci(0.95, method="exact")
    assert found.high == pytest.approx(exact.high, abs=1e-9)
    # At that share so few bad ones happen in one of twenty samples.
    assert binom.cdf(bad, n, found.high) == pytest.approx(0.05, abs=1e-9)


def test_the_bound_covers_at_least_95_of_100_sheets() -> None:
    """Exactly, by adding the chances of every count: no simulation."""
    for share in (0.01, 0.04, 0.05, 0.2, 0.5):
        covered = sum(
            binom.pmf(k, 60, share) for k in range(61) if upper_bound(k, 60).high >= share
        )
        assert covered >= 0.95 - 1e-12, share


def test_every_answer_bad_bounds_nothing_and_none_has_no_value() -> None:
    assert upper_bound(20, 20).high == 1.0
    nothing = upper_bound(0, 0)
    assert (nothing.value, nothing.high, nothing.undefined) == (None, None, "no_trials")
    with pytest.raises(ValueError, match="between 0 and n"):
        upper_bound(3, 2)
    with pytest.raises(ValueError, match="level"):
        upper_bound(0, 2, level=1.0)


def test_an_answer_counts_once_by_its_worst_verdict() -> None:
    assert worst_of(["fine", "unsafe", "bad"]) == "unsafe"
    assert worst_of([]) == ""
    found = judged([["fine", "bad"], ["fine", "fine"], ["unsafe"], []])
    assert (found.n, found.unjudged, found.n_bad) == (3, 1, 2)
    assert found.counts == {"fine": 1, "bad": 1, "unsafe": 1}
    # Three answers with twenty verdicts each are three trials and not sixty.
    assert judged([["fine"] * 20] * 3).bad.high == upper_bound(0, 3).high
