"""Statistics over real tokens: compared with plain Python on the kept numbers."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.rl.masked import masked_mean, masked_sum, masked_var, masked_whiten

NUMBERS = st.lists(st.floats(-100, 100), min_size=3, max_size=12)


def _ragged(numbers: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers as the real tokens of two rows, NaN under the padding."""
    cut = len(numbers) // 3
    width = max(cut, len(numbers) - cut)
    values = torch.full((2, width), float("nan"), dtype=torch.float64)
    mask = torch.zeros(2, width, dtype=torch.long)
    for row, part in enumerate((numbers[:cut], numbers[cut:])):
        values[row, : len(part)] = torch.tensor(part, dtype=torch.float64)
        mask[row, : len(part)] = 1
    return values, mask


@given(NUMBERS)
def test_mean_and_variance_are_those_of_the_real_tokens_alone(numbers: list[float]) -> None:
    values, mask = _ragged(numbers)
    assert masked_mean(values, mask).item() == pytest.approx(statistics.fmean(numbers), abs=1e-9)
    assert masked_var(values, mask).item() == pytest.approx(statistics.variance(numbers), abs=1e-7)


@given(NUMBERS)
def test_whitened_values_have_mean_0_and_variance_1(numbers: list[float]) -> None:
    if statistics.stdev(numbers) < 1e-2:
        return  # nearly constant values are kept small on purpose, see below
    values, mask = _ragged(numbers)
    whitened = masked_whiten(values, mask)
    kept = whitened[mask.bool()].tolist()
    assert statistics.fmean(kept) == pytest.approx(0.0, abs=1e-6)
    assert statistics.variance(kept) == pytest.approx(1.0, abs=1e-3)
    assert whitened[~mask.bool()].eq(0).all()


def test_whitening_without_shift_keeps_the_mean_and_scales_around_it() -> None:
    values = torch.tensor([[1.0, 3.0, 5.0]])
    whitened = masked_whiten(values, torch.ones_like(values), shift_mean=False)
    torch.testing.assert_close(whitened, torch.tensor([[2.0, 3.0, 4.0]]))


def test_whitening_does_not_blow_rounding_noise_up_to_unit_size() -> None:
    values = torch.tensor([[0.5, 0.5 + 1e-6, 0.5 - 1e-6]])
    assert masked_whiten(values, torch.ones_like(values)).abs().max() < 0.05


def test_sums_ignore_what_lies_under_the_padding_even_when_it_is_not_a_number() -> None:
    values = torch.tensor([[1.0, float("nan")], [2.0, float("inf")]])
    mask = torch.tensor([[1, 0], [1, 0]])
    assert masked_sum(values, mask).item() == 3.0
    assert masked_sum(values, mask, dim=1).tolist() == [1.0, 2.0]


def test_the_mean_of_nothing_is_undefined_rather_than_zero() -> None:
    assert masked_mean(torch.ones(1, 2), torch.zeros(1, 2)).isnan()
