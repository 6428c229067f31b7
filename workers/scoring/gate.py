"""No precision is served before it has shown that it orders this model's answers alike.

Until `ROWS` distinct texts were scored in both, callers get float32 whatever they asked for; then
the agreement decides, for good: a model's content does not change under its hash. The texts are the
first that callers send, so the check is on what the model is used for.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import redis

from measures.trust.precision import LEAST_AGREEMENT, rank_agreement

ROWS = 100
_PREFIX = "concord:score:precision:"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Share of pairs ordered alike over `rows` texts."""

    agreement: float
    rows: int

    @property
    def passed(self) -> bool:
        return self.agreement >= LEAST_AGREEMENT

    def says(self, precision: str) -> str:
        least = f"{100 * LEAST_AGREEMENT:.0f}"
        return (
            f"{precision} orders {100 * self.agreement:.1f} % of pairs of this model's answers as "
            f"float32 does ({self.rows} answers); at least {least} % is needed. Ask for float32."
        )


class PrecisionGate:
    """Verdicts by model and precision, shared through Redis."""

    def __init__(self, client: "redis.Redis[Any] | None") -> None:
        self._client = client
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._pairs: dict[tuple[str, str], dict[bytes, tuple[float, float]]] = {}

    def verdict(self, sha256: str, precision: str) -> Verdict | None:
        """None while it is open."""
        known = self._verdicts.get((sha256, precision))
        if known is None and self._client is not None:
            text = self._client.get(f"{_PREFIX}{sha256}:{precision}")
            if text is not None:
                known = self._verdicts[sha256, precision] = Verdict(**json.loads(text))
        return known

    def compare(
        self,
        sha256: str,
        precision: str,
        keys: Sequence[bytes],
        reference: Sequence[float],
        other: Sequence[float],
    ) -> Verdict | None:
        """Take in texts scored in both; the verdict once there are enough."""
        pairs = self._pairs.setdefault((sha256, precision), {})
        pairs.update(zip(keys, zip(reference, other, strict=True), strict=True))
        if len(pairs) < ROWS:
            return None
        agreement = _agreement(*map(np.array, zip(*pairs.values(), strict=True)))
        if agreement is None:  # float32 says the same of all of them: nothing to order
            pairs.clear()
            return None
        verdict = self._verdicts[sha256, precision] = Verdict(agreement, len(pairs))
        del self._pairs[sha256, precision]
        if self._client is not None:
            self._client.set(f"{_PREFIX}{sha256}:{precision}", json.dumps(asdict(verdict)))
        return verdict


def _agreement(reference: np.ndarray, other: np.ndarray) -> float | None:
    """(n,), (n,). A number format whose scores are no numbers agrees about nothing."""
    if not np.isfinite(other).all():
        return 0.0
    return rank_agreement(reference, other).value
