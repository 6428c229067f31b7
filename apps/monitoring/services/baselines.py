"""What a probe brought back, and what of it is kept as a baseline.

A trainer wrote it, so nothing in it is taken on trust: what cannot be used is a sentence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.training.models import Run
from apps.training.selectors.reports import report_read

FILE = "probe.json"
LONGEST = 600  # characters of a text that are kept
MOST_ROWS = 2000
_NEEDED = ("mean", "deviation", "n")


@dataclass(frozen=True, slots=True)
class Brought:
    """figures: {name: {mean, deviation, n}}; weights: {role: SHA-256}; rows: {prompt's id:
    {values: {name: number}, prompt, answer}}. `problem` says why there is nothing."""

    figures: Mapping[str, dict[str, float]] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


def brought_by(run: Run) -> Brought:
    """Of a finished probe."""
    figures = _figures(run.summary.get("figures"))
    if not figures:
        return Brought(problem="The probe finished and brought no figures.")
    report = report_read(run, FILE)
    if report.problem or not report.data:
        return Brought(problem=report.problem or f"The probe left no {FILE}.")
    rows = report.data.get("prompts")
    return Brought(
        figures=figures,
        weights=_weights(run.summary.get("weights_sha256")),
        rows=_rows(rows if isinstance(rows, list) else [], figures),
    )


def baseline_of(found: Brought) -> dict[str, Any]:
    """As a watch keeps it: whole, so that it stands when the run is gone."""
    return {
        "figures": dict(found.figures),
        "weights": dict(found.weights),
        "rows": {
            key: {"values": row["values"], "answer": row["answer"]}
            for key, row in found.rows.items()
        },
    }


def baseline_from(run: Run) -> dict[str, Any] | None:
    """None where the probe brought nothing that could be one."""
    found = brought_by(run)
    return None if found.problem else baseline_of(found)


def _figures(given: Any) -> dict[str, dict[str, float]]:
    """Those that are measured: a figure that is undefined this time has no mean."""
    found = {}
    for name, figure in given.items() if isinstance(given, Mapping) else ():
        values = [figure.get(key) for key in _NEEDED] if isinstance(figure, Mapping) else [None]
        if all(_is_number(value) for value in values):
            found[str(name)[:80]] = {
                key: float(value) for key, value in zip(_NEEDED, values, strict=True)
            }
    return found


def _weights(given: Any) -> dict[str, str]:
    """One hash, or one for each model that was asked."""
    if isinstance(given, str) and given:
        return {"model": given}
    if isinstance(given, Mapping):
        return {str(role): str(value) for role, value in given.items() if value}
    return {}


def _rows(given: list[Any], figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each with its share in the figures, as far as it has one."""
    found: dict[str, dict[str, Any]] = {}
    for row in given[:MOST_ROWS]:
        if isinstance(row, Mapping) and row.get("id") is not None:
            found[str(row["id"])] = {
                "values": {name: float(row[name]) for name in figures if _is_number(row.get(name))},
                "prompt": _text(row.get("prompt")),
                "answer": _text(row.get("response")),
            }
    return found


def _text(value: Any) -> str:
    """Messages are told by the last one's words."""
    if isinstance(value, list):
        value = value[-1].get("content", "") if value and isinstance(value[-1], Mapping) else ""
    text = value if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
