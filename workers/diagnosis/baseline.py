"""What healthy runs looked like at the same step. Learning itself moves every figure, so a run is
compared with others at its own age, and the run is the unit: two checks of one run are not two
witnesses, however many checks there are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 5  # steps that are averaged before they are compared
LEAST_RUNS = 4
LEAST_CHECKS = 200  # of one figure over all runs, before anything is concluded from them

Series = Mapping[str, Sequence[tuple[int, Any]]]


@dataclass(frozen=True, slots=True)
class Usual:
    """Mean over runs of a figure's average around a step, and its deviation between runs."""

    mean: float
    deviation: float
    runs: int

    def z(self, value: float, least: float = 0.0) -> float:
        """How far out a further run lies, as a standard normal deviate: t of the prediction error
        s√(1 + 1/R) with R − 1 degrees of freedom, so that few runs say little. `least` is the
        smallest deviation that is believed.

        The deviate is Wallace's approximation (1959), within 0.03 for 3 degrees or more."""
        spread = max(self.deviation, least) * math.sqrt(1 + 1 / self.runs)
        gap = value - self.mean
        if spread <= 0:
            return math.copysign(math.inf, gap) if gap else 0.0
        df, t = self.runs - 1, gap / spread
        size = (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))
        return math.copysign(size, t)


@dataclass(frozen=True)
class Baseline:
    """Means per run in buckets of `WIDTH` steps: {metric: {bucket: [mean of each run]}}."""

    means: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    checks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[Series]) -> "Baseline":
        means: dict[str, dict[int, list[float]]] = {}
        checks: dict[str, int] = {}
        for series in runs:
            for name, points in series.items():
                buckets: dict[int, list[float]] = {}
                for step, value in points:
                    if _is_number(value):
                        buckets.setdefault(step // WIDTH, []).append(float(value))
                        checks[name] = checks.get(name, 0) + 1
                for bucket, values in buckets.items():
                    mean = math.fsum(values) / len(values)
                    means.setdefault(name, {}).setdefault(bucket, []).append(mean)
        return cls(means, checks)

    def at(self, metric: str, step: int) -> Usual | None:
        """None where too few healthy runs came this far, or said too little."""
        values = self.means.get(metric, {}).get(step // WIDTH, ())
        if len(values) < LEAST_RUNS or self.checks.get(metric, 0) < LEAST_CHECKS:
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return Usual(mean, math.sqrt(variance), len(values))

    def to_json(self) -> dict[str, Any]:
        return {
            "looks": dict(self.checks),
            "means": {
                name: {str(bucket): list(values) for bucket, values in buckets.items()}
                for name, buckets in self.means.items()
            },
        }


def baseline_from_json(data: Mapping[str, Any]) -> Baseline:
    return Baseline(
        {
            name: {int(bucket): list(values) for bucket, values in buckets.items()}
            for name, buckets in data.get("means", {}).items()
        },
        dict(data.get("looks", {})),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
