"""What the page of a regression suite says: is the policy worse at anything that can be checked?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from measures.regression import Standing
from workers.contract.numbers import listed, percent


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    n: int
    before: str
    after: str
    difference: str
    lost: int
    won: int
    tone: str
    words: str


@dataclass(frozen=True, slots=True)
class Checks:
    """The verdict with its tone, a row for each category, and answers that were lost."""

    title: str
    text: str
    tone: str
    rows: list[Row]
    lost: list[dict[str, Any]]


def checks_of(found: Mapping[str, Any]) -> Checks | None:
    """None where the prompts of the evaluation carry no checks."""
    if not found:
        return None
    over_all = found["all"]
    rows = [_row(name, one) for name, one in found["categories"].items()]
    rows.append(_row("All", over_all))
    lost = [
        {"prompt": one["prompt"][-1]["content"], "policy": one["policy"], "other": one["baseline"]}
        for one in found["lost"]
    ]
    return Checks(*_said(found), rows=rows, lost=lost)


def _said(found: Mapping[str, Any]) -> tuple[str, str, str]:
    margin, one = percent(found["margin"]), found["all"]
    counts = f"Of {found['checks']:,} checks it lost {one['lost']:,} and won {one['won']:,}."
    match found["standing"]:
        case Standing.NOT_WORSE:
            return "Not worse", f"{counts} A drop of {margin} or more can be ruled out.", "good"
        case Standing.WORSE if found["worse"]:
            return (
                "Worse",
                f"Worse at {listed(found['worse'])}, by more than chance. {counts}",
                "bad",
            )
        case Standing.WORSE:
            return "Worse", f"{counts} That is more than chance.", "bad"
    return (
        "Undecided",
        f"{counts} A drop of {margin} cannot be ruled out with so few checks: evaluate on more "
        "prompts that carry them, all of the suite at least.",
        "warn",
    )


def _row(name: str, one: Mapping[str, Any]) -> Row:
    worse = one["standing"] == Standing.WORSE
    return Row(
        name=name,
        n=one["difference"]["n"],
        before=percent(one["before"]["value"]),
        after=percent(one["after"]["value"]),
        difference=_points(one["difference"]),
        lost=one["lost"],
        won=one["won"],
        tone="bad" if worse else "",
        words="worse" if worse else "",
    )


def _points(interval: Mapping[str, Any]) -> str:
    value, low, high = (interval.get(name) for name in ("value", "low", "high"))
    said = f"{100 * value:+.1f}" if value is not None else "—"
    if low is not None and high is not None:
        said += f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return said.replace("-", "−")
