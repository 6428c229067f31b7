"""The running scale of a reward."""

import math
from dataclasses import asdict, dataclass

from torch import Tensor

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
