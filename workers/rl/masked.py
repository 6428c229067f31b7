"""Statistics over the real tokens of padded tensors."""

import torch
from torch import Tensor


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of `values` where `mask`, over `dim` or over everything.

    Padding is replaced rather than multiplied by 0, since 0 × NaN is NaN.
    """
    kept = torch.where(mask.bool(), values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of `values` where `mask`; NaN where the mask is empty, for the mean is undefined."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """Variance over all masked values; NaN with fewer than two of them when `unbiased`."""
    count = mask.sum()
    centred = values - masked_mean(values, mask)
    return masked_sum(centred * centred, mask) / (count - 1 if unbiased else count)


def masked_whiten(
    values: Tensor, mask: Tensor, *, shift_mean: bool = True, epsilon: float = 1e-8
) -> Tensor:
    """`values` scaled to unit variance and, with `shift_mean`, to mean 0 over the mask.

    [B, R] -> [B, R], 0 under the padding. `epsilon` is added to the variance, so that values
    which differ by rounding only are not blown up to unit size. Whitening makes any non-constant
    signal look equally strong: the caller must have refused a constant reward before.
    """
    mean = masked_mean(values, mask)
    variance = masked_var(values, mask) if int(mask.sum()) > 1 else torch.zeros_like(mean)
    whitened = (values - mean) * torch.rsqrt(variance + epsilon)
    if not shift_mean:
        whitened = whitened + mean
    return torch.where(mask.bool(), whitened, torch.zeros_like(values))
