"""How a figure was spread over the answers of a step, over all attempts of a run."""

from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

from apps.training.models import Run, RunEvent
from apps.training.selectors.checkpoints import attempt_ends


@dataclass(frozen=True, slots=True)
class Spread:
    """`counts[i]` values lay from `edges[i]` to `edges[i + 1]` at `step`."""

    step: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.counts)


def histogram_names(run: Run) -> list[str]:
    rows = RunEvent.objects.filter(run=run, type="Histogram").order_by()
    return sorted({str(name) for name in rows.values_list("body__name", flat=True) if name})


def histograms(run: Run, name: str) -> list[Spread]:
    """By step. Points of an attempt count up to the step that the next one resumed from; a step
    sent twice shows what was sent last. What is no histogram is left out."""
    ends = attempt_ends(run)
    rows = RunEvent.objects.filter(run=run, type="Histogram", body__name=name)
    found: dict[int, Spread] = {}
    for attempt, body in rows.order_by("attempt", "seq").values_list("attempt", "body"):
        spread = _spread(body)
        if spread is not None and spread.step <= ends.get(attempt, inf):
            found[spread.step] = spread
    return [found[step] for step in sorted(found)]


def _spread(body: dict[str, Any]) -> Spread | None:
    step, edges, counts = body.get("step"), body.get("edges"), body.get("counts")
    if not isinstance(step, int) or not isinstance(edges, list) or not isinstance(counts, list):
        return None
    if not counts or len(edges) != len(counts) + 1:
        return None
    if not all(isinstance(edge, int | float) and isfinite(edge) for edge in edges):
        return None
    if not all(isinstance(n, int) and n >= 0 for n in counts):
        return None
    if any(high <= low for low, high in pairwise(edges)):
        return None
    return Spread(step, tuple(map(float, edges)), tuple(counts))
