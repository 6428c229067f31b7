"""Several candidates evaluated by one protocol: which is best, and how much of that is luck."""

from dataclasses import dataclass
from typing import Any

from apps.common.numbers import is_number
from apps.training.models import Run, RunInput
from apps.training.selectors.protocols import protocol_of
from measures.looks import best_of_inflation

_Z95 = 1.959964  # of a 95 % interval
_FIGURES = (("judge", "win_rate"), ("reward", "win_rate"))  # the first that all candidates have


@dataclass(frozen=True, slots=True)
class BestOf:
    """The best of `n` candidates: by how many standard errors its figure is expected to lie too
    high, and in the figure's own unit where its interval is known."""

    n: int
    figure: str
    inflation: float
    amount: float | None


def best_of(run: Run) -> BestOf | None:
    """Of the best one's page; None for any other run, and where there was no choice. A candidate is
    a model: of several evaluations of one by the same protocol the newest counts."""
    mine = protocol_of(run)
    if mine is None or run.state != Run.State.FINISHED:
        return None
    same = Run.objects.filter(
        project=run.project_id,
        kind=Run.Kind.EVALUATE,
        state=Run.State.FINISHED,
        summary__protocol__sha256=mine.sha256,
    ).order_by("ended_at", "pk")
    newest = {_candidate(one): one for one in same}
    if newest.get(_candidate(run)) != run or len(newest) < 2:
        return None
    for source, name in _FIGURES:
        values = {one.pk: _value(one.summary, source, name) for one in newest.values()}
        known = {key: value for key, value in values.items() if value is not None}
        if len(known) == len(values):
            if known[run.pk] < max(known.values()):
                return None
            inflation = best_of_inflation(len(newest))
            error = _standard_error(run.summary, source, name)
            amount = None if error is None else inflation * error
            return BestOf(len(newest), f"win rate by the {source}", inflation, amount)
    return None


def _candidate(run: Run) -> str:
    """The content of the policy; the run itself where nobody can say."""
    row = RunInput.objects.filter(run=run, role="policy").select_related("checkpoint").first()
    return row.checkpoint.sha256 if row and row.checkpoint else run.pk


def _value(summary: Any, source: str, name: str) -> float | None:
    found = _statistic(summary, source, name).get("value")
    return float(found) if is_number(found) else None


def _standard_error(summary: Any, source: str, name: str) -> float | None:
    """From the width of the 95 % interval."""
    found = _statistic(summary, source, name)
    low, high = found.get("low"), found.get("high")
    return (high - low) / (2 * _Z95) if is_number(low) and is_number(high) else None


def _statistic(summary: Any, source: str, name: str) -> dict[str, Any]:
    part = summary.get(source)
    found = part.get(name) if isinstance(part, dict) else None
    return found if isinstance(found, dict) else {}
