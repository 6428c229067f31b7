"""What the page of one annotator prints: a stored report in, words out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from apps.agreement.models import AnnotatorReport
from apps.agreement.screens.annotators import (
    CSV_SHARES,
    Figure,
    percent,
    points,
    range_of,
    seconds,
    signed,
)
from apps.agreement.selectors.annotators import Difference, Model
from measures.annotators import LEVEL
from measures.voting import CHOICES

WORDS = {"a": "A", "b": "B", "tie": "tie", "both_bad": "both bad"}
PERSON_COLUMNS = ("figure", "value", "low", "high", "n", "others", "note")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the figures: value, interval, basis, what others did, how to read it."""

    name: str
    value: str
    spread: str
    basis: str
    others: str
    note: str


@dataclass(frozen=True, slots=True)
class Verdict:
    tone: str
    icon: str
    sentence: str


def verdict(report: AnnotatorReport) -> Verdict:
    n = report.figures["n_tests"]
    if report.flags:
        stand = "stands" if len(report.flags) == 1 else "stand"
        return Verdict(
            "warn",
            "triangle-alert",
            f"{len(report.flags)} of the {n} habits that could be tested {stand} out. Nothing is "
            "done by itself: read the evidence, look at their pairs, talk to them.",
        )
    if not n:
        return Verdict(
            "",
            "info",
            "Too few votes to say anything yet. A rate needs 20 votes, gold pairs and repeats 10, "
            "and a comparison with others 30 pairs that others voted on too.",
        )
    return Verdict(
        "good",
        "circle-check",
        f"Nothing stands out: of {n} habits that could be tested, none goes beyond what honest "
        f"people show. An honest person is flagged with a chance of {percent(LEVEL, 0)} at most.",
    )


def lines(report: AnnotatorReport, model: Model | None) -> list[Line]:
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


def _missing(name: str, figure: Figure) -> Line:
    return Line(name, "", "", "", "", f"Undefined: {figure['undefined']}.")


def _share_line(name: str, figure: Figure, noun: str, *, note: str = "") -> Line:
    if figure["value"] is None:
        return _missing(name, figure)
    few = f"{figure['few'].capitalize()}. " if figure["few"] else ""
    beside = figure["compared"]
    others = "" if beside is None else f"{percent(beside)} others on the same pairs"
    basis = f"{figure['n']:,} {noun}"
    return Line(name, percent(figure["value"]), f"{range_of(figure)} %", basis, others, few + note)


def _beside_line(name: str, figure: Figure, *, among: str = "others on the same pairs") -> Line:
    if figure["value"] is None:
        return _missing(name, figure)
    few = f"{figure['few'].capitalize()}. " if figure["few"] else ""
    others = f"{percent(figure['compared'])} {among}" if figure["compared"] is not None else ""
    note = ""
    if figure["difference_low"] is not None:
        low, high = points(figure["difference_low"]), points(figure["difference_high"])
        note = f"{points(figure['difference'])} points ({low} to {high}){_than(figure)}."
    spread = f"{range_of(figure)} %" if figure["low"] is not None else ""
    return Line(
        name, percent(figure["value"]), spread, f"{figure['n']:,} pairs", others, few + note
    )


def _than(figure: Figure) -> str:
    if figure["expected"] is None:
        return ""
    return f" beside {percent(figure['expected'])}, which their agreement lets expect"


def _time_line(figures: dict[str, Any]) -> Line:
    if figures["median_ms"] is None:
        return Line("Median active time", "", "", "", "", "Undefined: no answer was timed.")
    return Line(
        "Median active time",
        seconds(figures["median_ms"]),
        "",
        f"{figures['n_timed']:,} answers",
        "",
        "Without pauses of a minute or more.",
    )


def _fast_line(figures: dict[str, Any]) -> Line:
    if not figures["fast_ms"]:
        return Line("Fast answers", "", "", "", "", "Undefined: Settings name no limit.")
    name = f"Answers in under {figures['fast_ms'] / 1000:g} s"
    note = "Hardly read. The limit is in Settings."
    return _share_line(name, figures["fast"], "answers", note=note)


def _left_note(figures: dict[str, Any]) -> str:
    if figures["left_p"] is None:
        return ""
    p = figures["left_p"]
    shown = "< 0.0001" if p < 0.0001 else f"= {p:.3f}"
    return f"Sides are drawn, so half is expected; exact test against half: p {shown}."


def _pull_line(pull: Figure) -> Line:
    name = "Would choose the left of two equals"
    if pull["value"] is None:
        return _missing(name, pull)
    return Line(
        name,
        percent(pull["value"]),
        f"{range_of(pull)} %",
        f"{pull['n']:,} votes",
        f"{percent(pull['project'])} in the project",
        "By the model of the pull of a side, drawn towards the project’s.",
    )


def _self_note(figures: dict[str, Any]) -> str:
    own = figures["self_accuracy"]
    kept, n = figures["kept_side"]
    if own["value"] is None:
        return (
            f"Stayed on the side in {kept:,} of {n:,}. What it says of accuracy is undefined: "
            f"{own['undefined']}."
        )
    return (
        f"Lets expect an accuracy of {percent(own['value'])} at best; a habit is consistent too. "
        f"Stayed on the side in {kept:,} of {n:,}."
    )


def _skill_line(figure: Figure) -> Line:
    if figure["value"] is None:
        return _missing("Skill", figure)
    return Line(
        "Skill",
        signed(figure["value"]),
        f"{signed(figure['low'])} to {signed(figure['high'])}",
        f"{figure['n']:,} pairs",
        "",
        "Agreement above chance, beside the others’: 1 is like them, 0 a coin, −1 their reverse.",
    )


def _model_line(model: Model | None) -> Line:
    if model is None or model.reliability is None:
        return Line(
            "Reliability by the model",
            "",
            "",
            "",
            "",
            "Not fitted yet: the models of the voters are fitted in the background.",
        )
    return Line(
        "Reliability by the model",
        percent(model.reliability),
        "",
        "",
        "",
        f"Chance to vote for what is right, by {model.method}.",
    )


def _drift_line(figure: Figure) -> Line:
    name = "Change, first third to last"
    if figure["value"] is None:
        return _missing(name, figure)
    low, high = points(figure["low"]), points(figure["high"])
    return Line(
        name,
        f"{points(figure['value'])} points",
        f"{low} to {high}",
        f"{figure['n']:,} votes",
        "",
        "Of agreement with others, beside how far they agree on the same pairs.",
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
            "prompt": excerpt(row.comparison.prompt.messages),
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


def probe_metric_rows(report: AnnotatorReport) -> Iterator[dict[str, Any]]:
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
