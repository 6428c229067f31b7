"""What the page of results prints: the order of the models, their pairs, and topics."""

from collections.abc import Iterator, Mapping
from typing import Any

from apps.agreement.models import AgreementReport
from apps.common.numbers import share as percent
from apps.common.report.blocks import Part
from apps.common.report.shares import shares
from measures.estimate import Interval
from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS

Figures = Mapping[str, Any]

MOST_COLUMNS = 6  # models of the table by topic; the file has all of them
REASONS = {
    "no_votes": "no vote says which of two models is better.",
    "too_few_models": "there is one model only.",
    "too_few_people": "{n_people} people have voted and intervals need " + f"{LEAST_PEOPLE}: with "
    "fewer, their own taste decides.",
    "too_few_prompts": "there are votes on {n_prompts} prompts and intervals need "
    f"{LEAST_PROMPTS}: with fewer, the choice of prompts decides.",
    "not_connected": "some models were never compared with the others, directly or through a third "
    "one.",
    "separated": "one model or several won, or lost, every vote against the others, so how much "
    "better they are has no bound. The pairs below still hold.",
    "unstable": "without a few of the people or prompts there is no order.",
    "all_alike": "all votes are alike.",
}
_CONTROLS = {
    "side": "The answer on the left",
    "length": "An answer 2.7 times as long as the other",
}
PAIR_COLUMNS = (
    *("model", "against", "wins", "losses", "ties", "both_bad", "win_rate", "low", "high"),
    *("votes", "prompts", "people", "no_interval"),
)
RANKING_COLUMNS = (
    *("topic", "controlled", "model", "rank_best", "rank_worst", "strength", "strength_low"),
    *("strength_high", "win_rate", "low", "high", "votes", "prompts", "people", "no_interval"),
)


def models_of(report: AgreementReport | None) -> Figures | None:
    """The figures, where any row names its models."""
    found = report.figures["models"] if report else None
    return found if found and found["pairs"] else None


def results(figures: Figures, *, controlled: bool) -> dict[str, Any]:
    """The template's context."""
    order = figures["orders"]["controlled" if controlled else "plain"]
    ranked = [_ranked(row, figures) for row in order["strengths"]]
    places = [row["model"] for row in order["strengths"]] or list(range(len(figures["names"])))
    return {
        "ranked": ranked,
        "chart": _chart(order, figures) if ranked else None,
        "verdict": _verdict(order, figures),
        "caution": _words(order) if order["reason"] and ranked else "",
        "controls": [_control(row) for row in order["controls"]],
        "order": order,
        "pairs": [_pair(pair, figures["names"]) for pair in figures["pairs"]],
        "columns": [figures["names"][place] for place in places[:MOST_COLUMNS]],
        "topics": [_topic(part, places[:MOST_COLUMNS]) for part in figures["topics"]],
        "n_unnamed": figures["n_unnamed"],
        "n_left_out": figures["n_models_left_out"],
    }


def _words(about: Figures) -> str:
    return REASONS[about["reason"]].format(**about)


def _verdict(order: Figures, figures: Figures) -> str:
    """Which model is better, in a sentence."""
    names, strengths = figures["names"], order["strengths"]
    if not strengths:
        return f"The models cannot be put in order: {_words(order)}"
    first = strengths[0]
    name = names[first["model"]]
    if order["reason"]:
        return f"{name} comes first; no interval says how surely."
    if first["worst"] == 1:
        wins, spread = percent(first["wins"]), _range(first["wins_low"], first["wins_high"])
        return (
            f"{name} is the best of {len(strengths)} models: against one of average strength it "
            f"wins {wins} of votes ({spread})."
        )
    leaders = [names[row["model"]] for row in strengths if row["best"] == 1]
    return f"The votes do not tell which is best of {', '.join(leaders)}."


def _ranked(row: Figures, figures: Figures) -> dict[str, Any]:
    rate = figures["rates"][row["model"]]
    same = row["best"] == row["worst"]
    return {
        "rank": f"{row['best']}" if same else f"{row['best']}–{row['worst']}",
        "name": figures["names"][row["model"]],
        "strength": f"{row['value']:+.2f}".replace("-", "−"),
        "wins": percent(row["wins"]),
        "spread": _range(row["wins_low"], row["wins_high"]),
        "rate": _share(rate),
        "rate_spread": _range(rate["low"], rate["high"]),
        "n": rate["n"],
    }


def _chart(order: Figures, figures: Figures) -> Part:
    rows = [
        (
            figures["names"][row["model"]],
            Interval(
                value=row["wins"],
                low=row["wins_low"],
                high=row["wins_high"],
                n=figures["rates"][row["model"]]["n"],
            ),
            "accent",
        )
        for row in order["strengths"]
    ]
    return shares(
        rows,
        line=0.5,
        line_label="a model of average strength",
        note="Share of votes each model wins against one of average strength.",
    )


def _control(row: Figures) -> dict[str, str]:
    bounds = "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
    value = f"{row['value']:+.2f}"
    return {
        "name": _CONTROLS[row["name"]],
        "value": value.replace("-", "−"),
        "spread": bounds.replace("-", "−"),
    }


def _pair(pair: Figures, names: list[str]) -> dict[str, Any]:
    first, second, rate = names[pair["first"]], names[pair["second"]], pair["rate"]
    parts, x = [], 0.0
    counts = (
        (first, "a", pair["wins"]),
        ("Tie", "neutral", pair["ties"]),
        ("Both bad", "bad", pair["both_bad"]),
        (second, "b", pair["losses"]),
    )
    total = sum(n for _, _, n in counts)
    for label, tone, n in counts:
        width = 100 * n / total
        parts.append({"label": label, "tone": tone, "n": n, "x": x, "width": width})
        x += width
    return {
        "first": first,
        "second": second,
        "parts": parts,
        "rate": _share(rate),
        "spread": _range(rate["low"], rate["high"]),
        "reason": _words(rate) if rate["reason"] else "",
        "better": _better(rate, first, second),
        "n": rate["n"],
        "n_prompts": rate["n_prompts"],
        "n_people": rate["n_people"],
    }


def _better(rate: Figures, first: str, second: str) -> str:
    if rate["low"] is None:
        return ""
    if rate["low"] > 0.5:
        return first
    return second if rate["high"] < 0.5 else "no clear difference"


def _topic(part: Figures, places: list[int]) -> dict[str, Any]:
    cells = [part["rates"][place] for place in places]
    return {
        "name": part["topic"],
        "n": part["n_votes"],
        "cells": [
            {"rate": _share(rate), "spread": _range(rate["low"], rate["high"]), "n": rate["n"]}
            for rate in cells
        ],
    }


def _share(rate: Figures) -> str:
    return "—" if rate["value"] is None else percent(rate["value"])


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f} %"


# The same for programs: files and the API.


def pair_rows(figures: Figures) -> list[dict[str, Any]]:
    names = figures["names"]
    return [
        {
            "model": names[pair["first"]],
            "against": names[pair["second"]],
            **{name: pair[name] for name in ("wins", "losses", "ties", "both_bad")},
            **_rate_columns(pair["rate"]),
        }
        for pair in figures["pairs"]
    ]


def ranking_rows(figures: Figures) -> Iterator[dict[str, Any]]:
    """The order without and with controls, and the win rates by topic."""
    for key, order in figures["orders"].items():
        for row in order["strengths"]:
            yield {
                "topic": "",
                "controlled": "yes" if key == "controlled" else "",
                "model": figures["names"][row["model"]],
                "rank_best": row["best"],
                "rank_worst": row["worst"],
                "strength": row["value"],
                "strength_low": row["low"],
                "strength_high": row["high"],
                **_rate_columns(figures["rates"][row["model"]]),
            }
    for part in figures["topics"]:
        for name, rate in zip(figures["names"], part["rates"], strict=True):
            yield {"topic": part["topic"], "controlled": "", "model": name, **_rate_columns(rate)}


def _rate_columns(rate: Figures) -> dict[str, Any]:
    return {
        "win_rate": rate["value"],
        "low": rate["low"],
        "high": rate["high"],
        "votes": rate["n"],
        "prompts": rate["n_prompts"],
        "people": rate["n_people"],
        "no_interval": rate["reason"],
    }
