"""What the pages of annotators print, the list and one person: stored figures in, words out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from apps.accounts.models import User
from apps.agreement.models import AnnotatorReport
from apps.agreement.selectors.annotators import Difference, Model
from apps.common import numbers
from apps.common.numbers import points
from measures.annotators import LEVEL
from measures.estimate import Interval
from measures.voting import CHOICES

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
    return "" if share is None else numbers.share(share, places)


def range_of(figure: Figure) -> str:
    if figure.get("low") is None:
        return ""
    return f"{100 * figure['low']:.1f}–{100 * figure['high']:.1f}"


def signed(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def seconds(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.1f} min"


@dataclass(frozen=True, slots=True)
class FigureCell:
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
    cells: list[FigureCell]


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


def _cell(figure: Figure) -> FigureCell:
    if figure["value"] is None:
        return FigureCell("", why=figure["undefined"])
    return FigureCell(percent(figure["value"]), range_of(figure))


def _gap_cell(figure: Figure) -> FigureCell:
    """Own less what the others on the same pairs let expect, in points."""
    if figure["value"] is None:
        return FigureCell("", why=figure["undefined"])
    low, high = figure["difference_low"], figure["difference_high"]
    spread = f"{points(low)} to {points(high)}" if low is not None else ""
    return FigureCell(points(figure["difference"]), spread)


def _skill_cell(figure: Figure) -> FigureCell:
    if figure["value"] is None:
        return FigureCell("", why=figure["undefined"])
    return FigureCell(
        signed(figure["value"]), f"{signed(figure['low'])} to {signed(figure['high'])}"
    )


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


# What the page of one annotator prints: a stored report in, words out.

WORDS = {"a": "A", "b": "B", "tie": "tie", "both_bad": "both bad"}
PERSON_COLUMNS = ("figure", "value", "low", "high", "n", "others", "note")


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of the figures: value, interval, basis, what others did, how to read it."""

    name: str
    value: str
    spread: str
    basis: str
    others: str
    note: str


@dataclass(frozen=True, slots=True)
class HabitVerdict:
    tone: str
    icon: str
    sentence: str


def verdict(report: AnnotatorReport) -> HabitVerdict:
    n = report.figures["n_tests"]
    if report.flags:
        stand = "stands" if len(report.flags) == 1 else "stand"
        return HabitVerdict(
            "warn",
            "triangle-alert",
            f"{len(report.flags)} of the {n} habits that could be tested {stand} out. No "
            "action is automatic: read the evidence, look at their pairs, talk to them.",
        )
    if not n:
        return HabitVerdict(
            "",
            "info",
            "Too few votes to say anything yet. A rate needs 20 votes, gold pairs and repeats 10, "
            "and a comparison with others 30 pairs that others voted on too.",
        )
    return HabitVerdict(
        "good",
        "circle-check",
        f"Nothing stands out: of {n} habits that could be tested, none goes beyond what honest "
        f"people show. An honest person is flagged with a chance of {percent(LEVEL, 0)} at most.",
    )


def lines(report: AnnotatorReport, model: Model | None) -> list[FigureRow]:
    figures = report.figures
    return [
        _time_line(figures),
        _fast_line(figures),
        _share_line("Chose the left side", figures["left"], "votes", note=_left_note(figures)),
        _pull_line(figures["pull"]),
        _beside_line("Chose neither (tie, both bad)", figures["ties"]),
        _beside_line("Chose the longer answer", figures["longer"]),
        _share_line("Right on gold pairs", figures["gold"], "gold pairs"),
        _share_line(
            "Same answer to a hidden repeat", figures["self"], "repeats", note=_self_note(figures)
        ),
        _beside_line(
            "Agrees with another vote", figures["agreement"], among="the others among themselves"
        ),
        _skill_line(figures["skill"]),
        _model_line(model),
        _drift_line(figures["drift"]),
    ]


_VALUES = {
    "gold": ("Right on gold gradings and rankings", "answers"),
    "repeats": ("Same grading or ranking at a hidden repeat", "repeats"),
    "audits": ("Gradings and rankings that an audit confirmed", "audits"),
}


def values_lines(found: Mapping[str, Interval]) -> list[FigureRow]:
    """Those of which there is something to count."""
    return [
        FigureRow(
            name,
            percent(found[key].value),
            f"{range_of(asdict(found[key]))} %",
            f"{found[key].n:,} {noun}",
            "",
            "Within a sixth of the scale on average, or five of six pairs in the same order.",
        )
        for key, (name, noun) in _VALUES.items()
        if found[key].n
    ]


def values_rows(found: Mapping[str, Interval]) -> list[dict[str, Any]]:
    """The same for the CSV."""
    parts = ("value", "low", "high", "n")
    return [
        {"figure": f"values_{key}"} | {part: getattr(one, part) for part in parts}
        for key, one in found.items()
        if one.n
    ]


def _missing(name: str, figure: Figure) -> FigureRow:
    return FigureRow(name, "", "", "", "", f"Undefined: {figure['undefined']}.")


def _share_line(name: str, figure: Figure, noun: str, *, note: str = "") -> FigureRow:
    if figure["value"] is None:
        return _missing(name, figure)
    few = f"{figure['few'].capitalize()}. " if figure["few"] else ""
    beside = figure["compared"]
    others = "" if beside is None else f"{percent(beside)} others on the same pairs"
    basis = f"{figure['n']:,} {noun}"
    return FigureRow(
        name, percent(figure["value"]), f"{range_of(figure)} %", basis, others, few + note
    )


def _beside_line(
    name: str, figure: Figure, *, among: str = "others on the same pairs"
) -> FigureRow:
    if figure["value"] is None:
        return _missing(name, figure)
    few = f"{figure['few'].capitalize()}. " if figure["few"] else ""
    others = f"{percent(figure['compared'])} {among}" if figure["compared"] is not None else ""
    note = ""
    if figure["difference_low"] is not None:
        low, high = points(figure["difference_low"]), points(figure["difference_high"])
        note = f"{points(figure['difference'])} points ({low} to {high}){_than(figure)}."
    spread = f"{range_of(figure)} %" if figure["low"] is not None else ""
    return FigureRow(
        name, percent(figure["value"]), spread, f"{figure['n']:,} pairs", others, few + note
    )


def _than(figure: Figure) -> str:
    if figure["expected"] is None:
        return ""
    return f" compared with {percent(figure['expected'])}, expected from their agreement"


def _time_line(figures: dict[str, Any]) -> FigureRow:
    if figures["median_ms"] is None:
        return FigureRow("Median active time", "", "", "", "", "Undefined: no answer was timed.")
    return FigureRow(
        "Median active time",
        seconds(figures["median_ms"]),
        "",
        f"{figures['n_timed']:,} answers",
        "",
        "Without pauses of a minute or more.",
    )


def _fast_line(figures: dict[str, Any]) -> FigureRow:
    if not figures["fast_ms"]:
        return FigureRow("Fast answers", "", "", "", "", "Undefined: Settings name no limit.")
    name = f"Answers in under {figures['fast_ms'] / 1000:g} s"
    note = "Hardly read. The limit is in Settings."
    return _share_line(name, figures["fast"], "answers", note=note)


def _left_note(figures: dict[str, Any]) -> str:
    if figures["left_p"] is None:
        return ""
    p = figures["left_p"]
    shown = "< 0.0001" if p < 0.0001 else f"= {p:.3f}"
    return f"Sides are drawn, so half is expected; exact test against half: p {shown}."


def _pull_line(pull: Figure) -> FigureRow:
    name = "Position bias (left share for equal answers)"
    if pull["value"] is None:
        return _missing(name, pull)
    return FigureRow(
        name,
        percent(pull["value"]),
        f"{range_of(pull)} %",
        f"{pull['n']:,} votes",
        f"{percent(pull['project'])} in the project",
        "Estimated by the position bias model, shrunk towards the project's average.",
    )


def _self_note(figures: dict[str, Any]) -> str:
    own = figures["self_accuracy"]
    kept, n = figures["kept_side"]
    if own["value"] is None:
        return (
            f"Chose the same side in {kept:,} of {n:,}. What it says of accuracy is undefined: "
            f"{own['undefined']}."
        )
    return (
        f"Implies an accuracy of {percent(own['value'])} at best; a habit can be consistent too. "
        f"Chose the same side in {kept:,} of {n:,}."
    )


def _skill_line(figure: Figure) -> FigureRow:
    if figure["value"] is None:
        return _missing("Agreement score", figure)
    return FigureRow(
        "Agreement score",
        signed(figure["value"]),
        f"{signed(figure['low'])} to {signed(figure['high'])}",
        f"{figure['n']:,} pairs",
        "",
        "Agreement above chance relative to the others: "
        "1 = like the others, 0 = random, −1 = always the opposite.",
    )


def _model_line(model: Model | None) -> FigureRow:
    if model is None or model.reliability is None:
        return FigureRow(
            "Reliability by the model",
            "",
            "",
            "",
            "",
            "Not fitted yet: the model is fitted in the background.",
        )
    return FigureRow(
        "Reliability by the model",
        percent(model.reliability),
        "",
        "",
        "",
        f"Chance to vote for what is right, by {model.method}.",
    )


def _drift_line(figure: Figure) -> FigureRow:
    name = "Change, first third to last"
    if figure["value"] is None:
        return _missing(name, figure)
    low, high = points(figure["low"]), points(figure["high"])
    return FigureRow(
        name,
        f"{points(figure['value'])} points",
        f"{low} to {high}",
        f"{figure['n']:,} votes",
        "",
        "Change in agreement with others, relative to how far those agree on the same pairs.",
    )


def confusion_rows(model: Model | None) -> list[tuple[str, list[str]]]:
    """P(vote | truth) of the model, a row per truth; empty before a fit."""
    if model is None or len(model.confusion) != len(CHOICES):
        return []
    return [
        (WORDS[str(truth)], [percent(share, 0) for share in row])
        for truth, row in zip(CHOICES, model.confusion, strict=True)
    ]


def differences(found: list[Difference], excerpt: Callable[..., str]) -> list[dict[str, Any]]:
    """`excerpt` shortens a prompt's messages."""
    many = WORDS | {"tie": "ties"}
    return [
        {
            "comparison": row.comparison,
            "prompt": excerpt(row.comparison.prompt.brief),
            "choice": WORDS[row.choice],
            "others": ", ".join(
                f"{n} {(WORDS if n == 1 else many)[choice]}"
                for choice in WORDS
                if (n := row.others.get(choice))
            ),
            "at": row.cast_at,
        }
        for row in found
    ]


def figure_rows(report: AnnotatorReport) -> Iterator[dict[str, Any]]:
    """The figures as they are stored, for the CSV of one person."""
    figures = report.figures
    yield {"figure": "votes", "n": report.n_votes}
    yield {
        "figure": "median_seconds",
        "value": _or_none(figures["median_ms"]),
        "n": figures["n_timed"],
    }
    for name in (*CSV_SHARES, "pull"):
        figure = figures[name]
        yield {
            "figure": name,
            "value": figure["value"],
            "low": figure.get("low"),
            "high": figure.get("high"),
            "n": figure["n"],
            "others": figure.get("compared") if name != "pull" else figure.get("project"),
            "note": figure["undefined"] or figure.get("few") or "",
        }
    for flag in report.flags:
        yield {"figure": f"flag: {flag['label']}", "note": flag["sentence"]}


def _or_none(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
