"""What the page of slices prints: a chart and a table per way to slice, and what stands out."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from apps.agreement.models import AgreementReport
from apps.common.numbers import share as percent
from apps.common.report.blocks import Part, part_of
from apps.common.report.shares import interval_of, shares
from measures.blocks import Curve, Series

TITLES = {
    "time": "When",
    "guideline": "Guideline version",
    "topic": "Topic",
    "language": "Language",
    "prompt_length": "Length of the prompt",
    "length_gap": "Length of the answers: longer to shorter",
    "source": "Where the answers come from",
}
ABOUT = {
    "time": "Comparisons by when they got their first vote.",
    "guideline": "Votes by the version they were cast under; two votes count together where it was "
    "the same.",
    "topic": "Comparisons by the topic of their prompt.",
    "language": "Comparisons by the language of their prompt.",
    "prompt_length": "Comparisons in five groups by the characters of their prompt.",
    "length_gap": "How many times as long as the shorter answer the longer one is. Answers much "
    "alike are hard to tell from each other.",
    "source": "Comparisons by the two sources of their answers, whichever was A.",
}
# What a slice is called in a sentence.
NOUNS = {
    "time": "Comparisons first voted on in the {unit} of {label}",
    "guideline": "Votes under guideline {label}",
    "topic": "Topic “{label}”",
    "language": "Language “{label}”",
    "prompt_length": "Prompts of {label}",
    "length_gap": "Comparisons whose longer answer is {label}",
    "source": "Answers from {label}",
}
SORTS = {"slice": "Slice", "percent": "Percent agreement", "alpha": "Alpha", "n": "n"}


@dataclass(frozen=True, slots=True)
class SliceRow:
    label: str
    percent: str
    spread: str
    alpha: str
    alpha_spread: str
    n_items: int
    n_votes: int
    difference: str
    is_worse: bool


@dataclass(frozen=True, slots=True)
class SlicePart:
    """One way to slice. Where there is one slice only, `only` says so and there is no chart."""

    key: str
    title: str
    about: str
    rows: list[SliceRow]
    chart: Part | None
    only: str
    summary: str
    unit: str


def slices(report: AgreementReport, *, sort: str = "", down: bool = False) -> dict[str, Any]:
    """The template's context. Rows keep their own order (time, length) unless one is asked for."""
    figures = report.figures["slices"]
    project = report.figures["statistics"]["percent"]["value"]
    return {
        "parts": [_part(part, project, sort, down) for part in figures["dimensions"]],
        "worse": worse_sentences(figures),
        "n_tested": figures["n_tested"],
        "project": None if project is None else percent(project),
    }


def worse_sentences(figures: dict[str, Any]) -> list[str]:
    """A sentence for each slice that is worse than the rest, the worst first."""
    found = []
    for part in figures["dimensions"]:
        for row in part["slices"]:
            gap = row["gap"]
            if not gap["is_worse"]:
                continue
            here = row["percent"]["value"]
            noun = NOUNS[part["key"]].format(label=row["label"], unit=part["unit"])
            bounds = f"{_points(gap['low'])} to {_points(gap['high'])}"
            sentence = (
                f"{noun}: people agree less than elsewhere, in {percent(here)} against "
                f"{percent(here - gap['value'])} (difference {_points(gap['value'])} points, 95 % "
                f"interval {bounds}; n = {row['n_items']:,} comparisons)."
            )
            found.append((gap["value"], sentence))
    return [sentence for _, sentence in sorted(found)]


def _points(fraction: float) -> str:
    return f"{100 * fraction:+.1f}".replace("-", "−")


def _part(part: dict[str, Any], project: float | None, sort: str, down: bool) -> SlicePart:
    found, key = part["slices"], part["key"]
    several = len(found) > 1
    chart = _chart(found, project, by_time=key == "time") if several else None
    return SlicePart(
        key=key,
        title=TITLES[key],
        about=ABOUT[key],
        rows=[_row(row) for row in _sorted(found, sort, down)],
        chart=chart,
        only="" if several else _only(part),
        summary=_summary(found) if several else "",
        unit=part["unit"],
    )


def _chart(found: list[dict[str, Any]], project: float | None, *, by_time: bool) -> Part:
    known = [
        interval_of(row["percent"] | {"n_items": row["n_items"]}, undefined="too few")
        for row in found
    ]
    worse = [bool(row["gap"]["is_worse"]) for row in found]
    whole, note = "the whole project", _summary(found)
    if not by_time:
        labels = [row["label"] for row in found]
        tones = ["bad" if is_worse else "accent" for is_worse in worse]
        rows = zip(labels, known, tones, strict=True)
        return shares(rows, line=project, line_label=whole, note=note)
    days = [float(date.fromisoformat(row["label"]).toordinal()) for row in found]
    series = Series(
        label="Percent agreement",
        x=tuple(days),
        y=tuple(of.value for of in known),
        low=tuple(of.low for of in known),
        high=tuple(of.high for of in known),
        marked=tuple(worse),
    )
    return part_of(
        Curve(
            title="",
            series=(series,),
            x_label="",
            y_label="",
            x_names=tuple(zip(days, [row["label"] for row in found], strict=True)),
            y_unit="share",
            reference=project,
            reference_label=whole,
            note=f"{note} The band is the 95 % interval.",
        )
    )


def _only(part: dict[str, Any]) -> str:
    if not part["slices"]:
        return "No comparison has two votes yet."
    label = part["slices"][0]["label"]
    if part["others"]:
        return f"{part['others']:,} values, none of them with ten comparisons: too rare to compare."
    return f"All are of one kind here: {label}."


def _summary(found: list[dict[str, Any]]) -> str:
    known = [row for row in found if row["percent"]["value"] is not None]
    if not known:
        return "No slice has two votes on a comparison."
    low = min(known, key=lambda row: row["percent"]["value"])
    high = max(known, key=lambda row: row["percent"]["value"])
    return (
        f"From {percent(low['percent']['value'])} ({low['label']}) to "
        f"{percent(high['percent']['value'])} ({high['label']})."
    )


def _row(row: dict[str, Any]) -> SliceRow:
    share, alpha, gap = row["percent"], row["alpha"], row["gap"]
    return SliceRow(
        label=row["label"],
        percent="—" if share["value"] is None else percent(share["value"]),
        spread=_spread(share, lambda x: f"{100 * x:.1f}", " %"),
        alpha="—" if alpha["value"] is None else _alpha(alpha["value"]),
        alpha_spread=_spread(alpha, _alpha, ""),
        n_items=row["n_items"],
        n_votes=row["n_votes"],
        difference=gap["untested"] or _points(gap["value"]),
        is_worse=gap["is_worse"],
    )


def _alpha(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _spread(found: dict[str, Any], shown: Any, unit: str) -> str:
    if found["low"] is None:
        return ""
    return f"{shown(found['low'])}–{shown(found['high'])}{unit}".replace("–−", " to −")


def _known(value: float | None) -> float:
    """Values that are undefined come before all others."""
    return -2.0 if value is None else value


def _sorted(found: list[dict[str, Any]], sort: str, down: bool) -> list[dict[str, Any]]:
    keys = {
        "slice": lambda row: row["label"],
        "percent": lambda row: (
            row["percent"]["value"] if row["percent"]["value"] is not None else -1
        ),
        "alpha": lambda row: row["alpha"]["value"] if row["alpha"]["value"] is not None else -2,
        "n": lambda row: row["n_items"],
    }
    return sorted(found, key=keys[sort], reverse=down) if sort in keys else found


CSV_COLUMNS = (
    "kind",
    "slice",
    "percent",
    "percent_low",
    "percent_high",
    "alpha",
    "alpha_low",
    "alpha_high",
    "comparisons",
    "votes",
    "difference_from_rest",
    "difference_low",
    "difference_high",
    "p_adjusted",
    "worse",
)


def csv_rows(report: AgreementReport) -> list[dict[str, Any]]:
    """Every slice as a row, fractions as numbers."""
    return [
        {
            "kind": part["key"],
            "slice": row["label"],
            "percent": row["percent"]["value"],
            "percent_low": row["percent"]["low"],
            "percent_high": row["percent"]["high"],
            "alpha": row["alpha"]["value"],
            "alpha_low": row["alpha"]["low"],
            "alpha_high": row["alpha"]["high"],
            "comparisons": row["n_items"],
            "votes": row["n_votes"],
            "difference_from_rest": row["gap"]["value"],
            "difference_low": row["gap"]["low"],
            "difference_high": row["gap"]["high"],
            "p_adjusted": row["gap"]["adjusted"],
            "worse": "yes" if row["gap"]["is_worse"] else "",
        }
        for part in report.figures["slices"]["dimensions"]
        for row in part["slices"]
    ]
