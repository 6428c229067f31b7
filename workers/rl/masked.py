"""Statistics over the real tokens of padded tensors."""

import math
from dataclasses import asdict, dataclass

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


# The running scale of a reward.

# A spread below this, or below this share of the scores' own size, is rounding and not preference
# (log-odds and rule scores alike live on a scale of about 1).
SPREAD_FLOOR = 1e-5


@dataclass
class RunningMoments:
    """Mean and variance of all scores seen so far, merged batch by batch.

    Raw scores have no scale of their own; divided by their running deviation the KL coefficient
    means the same for every reward, and a reward times ten gives the same updates. Over all
    scores rather than per batch, since a batch's own deviation hides a collapse of the spread.
    Source: Chan, Golub & LeVeque 1979 (merging); scaling by running moments after Zheng et al.
    2023, "Secrets of RLHF in Large Language Models Part I", section 5.3.1.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0  # sum of squared distances from the mean

    @property
    def std(self) -> float:
        """Sample deviation; 0 with fewer than two scores."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0

    @property
    def constant(self) -> bool:
        """Whether all scores so far were equal up to rounding: then they prefer nothing."""
        return self.std <= SPREAD_FLOOR * max(1.0, abs(self.mean))

    def update(self, scores: Tensor) -> None:
        """Take in a batch [B] of raw scores."""
        batch = scores.double()
        n = batch.numel()
        if n == 0:
            return
        mean = float(batch.mean())
        total = self.count + n
        delta = mean - self.mean
        self.m2 += float(((batch - mean) ** 2).sum()) + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.count = total

    def normalise(self, scores: Tensor, *, clip: float) -> Tensor:
        """(scores − mean) / std, clipped to ±`clip` deviations: [B] -> [B]. 0 when constant."""
        if self.constant:
            return scores * 0.0
        return ((scores - self.mean) / self.std).clamp(-clip, clip)

    def state(self) -> dict[str, float]:
        return asdict(self)
