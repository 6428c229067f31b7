"""What the list of annotators prints: stored figures in, words out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import User
from apps.agreement.models import AnnotatorReport

Figure = dict[str, Any]

CSV_SHARES = ("fast", "left", "ties", "longer", "gold", "self", "agreement", "skill", "drift")
CSV_COLUMNS = (
    "annotator",
    "votes",
    "flags",
    "median_seconds",
    *(f"{name}_{part}" for name in CSV_SHARES for part in ("value", "low", "high", "n")),
    "ties_others",
    "longer_others",
    "longer_expected",
    "agreement_others",
    "pull_left",
    "reliability",
    "left_out",
    "paused",
)


def name_of(user: User, *, with_names: bool) -> str:
    """Reviewers and engineers see numbers; admins, who look after people, see names."""
    return str(user) if with_names else f"Annotator {user.pk}"


def percent(share: float | None, places: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{places}f} %"


def range_of(figure: Figure) -> str:
    if figure.get("low") is None:
        return ""
    return f"{100 * figure['low']:.1f}–{100 * figure['high']:.1f}"


def points(gap: float) -> str:
    return f"{100 * gap:+.1f}".replace("-", "−")


def signed(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def seconds(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.1f} min"


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of the list; `why` is the title of an empty one."""

    value: str
    spread: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AnnotatorRow:
    user_id: int
    name: str
    report: AnnotatorReport
    labels: list[str]
    early: bool
    median: str
    cells: list[Cell]


def list_rows(reports: list[AnnotatorReport], *, with_names: bool) -> list[AnnotatorRow]:
    """The cells are those of the template's columns: fast, left, neither, longer, gold, agreement,
    skill."""
    return [
        AnnotatorRow(
            user_id=report.user_id,
            name=name_of(report.user, with_names=with_names),
            report=report,
            labels=[flag["label"] for flag in report.flags],
            early=not report.figures["n_tests"],
            median=seconds(report.figures["median_ms"]),
            cells=[
                _cell(report.figures["fast"]),
                _cell(report.figures["left"]),
                _gap_cell(report.figures["ties"]),
                _gap_cell(report.figures["longer"]),
                _cell(report.figures["gold"]),
                _cell(report.figures["agreement"]),
                _skill_cell(report.figures["skill"]),
            ],
        )
        for report in reports
    ]


def _cell(figure: Figure) -> Cell:
    if figure["value"] is None:
        return Cell("", why=figure["undefined"])
    return Cell(percent(figure["value"]), range_of(figure))


def _gap_cell(figure: Figure) -> Cell:
    """Own less what the others on the same pairs let expect, in points."""
    if figure["value"] is None:
        return Cell("", why=figure["undefined"])
    low, high = figure["difference_low"], figure["difference_high"]
    spread = f"{points(low)} to {points(high)}" if low is not None else ""
    return Cell(points(figure["difference"]), spread)


def _skill_cell(figure: Figure) -> Cell:
    if figure["value"] is None:
        return Cell("", why=figure["undefined"])
    return Cell(signed(figure["value"]), f"{signed(figure['low'])} to {signed(figure['high'])}")


def csv_rows(reports: list[AnnotatorReport], *, with_names: bool) -> Iterator[dict[str, Any]]:
    for report in reports:
        figures = report.figures
        median = figures["median_ms"]
        yield {
            "annotator": name_of(report.user, with_names=with_names),
            "votes": report.n_votes,
            "flags": "; ".join(flag["label"] for flag in report.flags),
            "median_seconds": None if median is None else median / 1000,
            **{
                f"{name}_{part}": figures[name][part]
                for name in CSV_SHARES
                for part in ("value", "low", "high", "n")
            },
            "ties_others": figures["ties"]["compared"],
            "longer_others": figures["longer"]["compared"],
            "longer_expected": figures["longer"]["expected"],
            "agreement_others": figures["agreement"]["compared"],
            "pull_left": figures["pull"]["value"],
            "reliability": report.reliability,
            "left_out": report.left_out_reason if report.left_out_at else "",
            "paused": report.paused_reason or "",
        }
