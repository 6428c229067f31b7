"""Do two sets of scores order alike? Against Kendall's τ, and by hand."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from measures.rank_agreement import rank_agreement


@pytest.mark.parametrize("n", [3, 50, 700])
def test_without_ties_it_is_kendalls_tau_on_another_scale(n: int) -> None:
    rng = np.random.default_rng(n)
    first = rng.normal(size=n)
    second = first + rng.normal(size=n)
    assert rank_agreement(first, second) == pytest.approx((kendalltau(first, second)[0] + 1) / 2)


def test_by_hand_a_tie_in_the_other_counts_half_and_one_in_the_reference_not_at_all() -> None:
    # pairs that differ in the reference: (0,1) alike, (0,2) alike, (1,3) tied, (2,3) wrong,
    # (0,3) alike; (1,2) ties there
    assert rank_agreement([1, 2, 2, 3], [0, 5, 6, 5]) == pytest.approx((3 + 0.5) / 5)


def test_the_same_order_in_other_units_is_full_agreement_and_the_reverse_none() -> None:
    values = [0.1, 0.5, 0.2, 9.0]
    assert rank_agreement(values, [10 * v - 3 for v in values]) == 1.0
    assert rank_agreement(values, [-v for v in values]) == 0.0


def test_a_score_that_is_no_number_orders_nothing() -> None:
    assert rank_agreement([1, 2, 3], [1, 2, float("nan")]) == pytest.approx(1 / 3)


def test_where_the_reference_has_no_order_nothing_can_be_said() -> None:
    assert rank_agreement([1.0, 1.0], [1.0, 2.0]) is None
    assert rank_agreement([], []) is None
    with pytest.raises(ValueError, match="reference"):
        rank_agreement([float("nan"), 1.0], [1.0, 2.0])
