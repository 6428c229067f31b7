"""What the agreement page prints: a stored report in, words and SVG geometry out."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.models import AgreementReport
from apps.agreement.screens.charts import (
    Estimate,
    Whiskers,
    alarms,
    cost_card,
    percent,
    position_card,
    whiskers,
)
from apps.agreement.screens.slices import worse_sentences
from apps.agreement.screens.statistics import (
    NAMES,
    counted,
    interval_words,
    statistic_rows,
    which_votes,
)
from measures.agreement.reading import LEAST_AGREEMENT

# The horizontal bars of vote splits: pixels per row; label, bar, value.
ROW = 26
SPLIT_LEFT, SPLIT_BAR, SPLIT_RIGHT = 76, 380, 130
MOST_SPLITS = 14


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    spread: str
    basis: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A vote split: `kept` of `width` pixels were accepted by the rule."""

    y: int
    label: str
    width: float
    kept: float
    text_x: float
    comparisons: int
    percent: float


@dataclass(frozen=True, slots=True)
class BarChart:
    bars: list[Bar]
    width: int
    height: int
    left_out: int


def overview(report: AgreementReport) -> dict[str, Any]:
    """The template's context."""
    figures = report.figures
    statistics = figures["statistics"]
    return {
        "tiles": _tiles(report),
        "notes": alarms(statistics),
        "worse": worse_sentences(figures["slices"]),
        "statistics": statistic_rows(figures),
        "interval_words": interval_words(figures["clustering"]),
        "which_votes": which_votes(report),
        "rule": figures["rule"],
        "splits": split_chart(figures["splits"]),
        "decisions": figures["decisions"],
        "chance": figures["chance"]
        | {
            "two_way_percent": percent(figures["chance"]["two_way"]),
            "with_ties_percent": percent(figures["chance"]["with_ties"]),
            "posterior_percent": _maybe_percent(figures["chance"]["posterior"]),
            "accuracy_percent": _maybe_percent(figures["chance"]["accuracy"]),
            "filters_nothing": figures["chance"]["two_way"] > 0.999,
        },
        "gold": _gold(figures["decisions"]["gold"]),
        "anchors": anchor_chart(figures),
        "ceiling": _ceiling(figures["two_way"]),
        "no_ceiling": (figures["two_way"].get("ceiling") or {}).get("undefined"),
        "position": position_card(figures["position"]),
        "cost": cost_card(figures["cost"]),
    }


def _maybe_percent(fraction: float | None) -> str:
    return "" if fraction is None else percent(fraction)


def _tiles(report: AgreementReport) -> list[Tile]:
    figures = report.figures
    votes = Tile(
        "Votes",
        f"{report.n_votes:,}",
        "",
        f"{counted(figures['n_annotators'], 'person', 'people')}, "
        f"{counted(report.n_comparisons, 'comparison')}",
    )
    per_kept = figures["cost"]["votes_per_kept"]
    cost = Tile(
        "Votes per accepted comparison",
        "—" if per_kept["value"] is None else f"{per_kept['value']:.2f}",
        "",
        per_kept["undefined"] or f"n = {figures['cost']['n_kept']:,} accepted comparisons",
    )
    return [
        votes,
        *(
            _estimate_tile(NAMES[key], figures["statistics"][key], as_percent=key == "percent")
            for key in ("percent", "alpha")
        ),
        cost,
    ]


def _estimate_tile(name: str, estimate: dict[str, Any], *, as_percent: bool) -> Tile:
    if estimate["value"] is None:
        return Tile(name, "undefined", "", estimate["undefined"])

    def shown(value: float) -> str:
        return f"{100 * value:.1f}" if as_percent else f"{value:.3f}".replace("-", "−")

    unit = " %" if as_percent else ""
    spread, basis = "", f"n = {estimate['n_items']:,} comparisons"
    if estimate["no_interval"]:
        basis = f"{basis}; no interval: {estimate['no_interval']}"
    if estimate["low"] is not None:
        between = "–" if as_percent else " to "
        spread = f"{shown(estimate['low'])}{between}{shown(estimate['high'])}"
    return Tile(name, shown(estimate["value"]) + unit, spread, basis)


def _gold(gold: dict[str, Any] | None) -> dict[str, Any] | None:
    if gold is None:
        return None
    shown = {"n": gold["n"], "majority": percent(gold["majority"]), "kept_n": gold["kept_n"]}
    if gold["kept"] is not None:
        kept = gold["kept"]
        shown |= {"kept": percent(kept["value"]), "interval": kept["no_interval"]}
        if kept["low"] is not None:
            shown["interval"] = f"{100 * kept['low']:.1f}–{100 * kept['high']:.1f} %"
    return shown


def _ceiling(two_way: dict[str, Any]) -> dict[str, str] | None:
    ceiling = two_way.get("ceiling")
    if not ceiling or ceiling["annotator_accuracy"] is None:
        return None
    return {
        "agreement": percent(ceiling["agreement"]),
        "accuracy": percent(ceiling["annotator_accuracy"]),
    }


def split_chart(splits: list[dict[str, Any]]) -> BarChart:
    """Vote patterns ("5", "4–1", …) as bars, most agreeing first; the rarest are left out."""
    total = sum(row["comparisons"] for row in splits)
    commonest = sorted(splits, key=lambda row: -row["comparisons"])[:MOST_SPLITS]
    shown = [row for row in splits if row in commonest]
    largest = max((row["comparisons"] for row in shown), default=1)
    bars = []
    for place, row in enumerate(shown):
        width = round(SPLIT_BAR * row["comparisons"] / largest, 1)
        bars.append(
            Bar(
                y=place * ROW,
                label=row["pattern"],
                width=width,
                kept=round(SPLIT_BAR * row["accepted"] / largest, 1),
                text_x=SPLIT_LEFT + width + 8,
                comparisons=row["comparisons"],
                percent=100 * row["comparisons"] / total,
            )
        )
    return BarChart(
        bars=bars,
        width=SPLIT_LEFT + SPLIT_BAR + SPLIT_RIGHT,
        height=max(1, len(bars)) * ROW,
        left_out=total - sum(bar.comparisons for bar in bars),
    )


def anchor_chart(figures: dict[str, Any]) -> Whiskers:
    """This project's percent agreement above published ones."""
    rows = [
        Estimate(label, found["value"], found["low"], found["high"], tone="ours")
        for label, found in (
            ("This project", figures["statistics"]["percent"]),
            ("This project, A or B votes only", figures["two_way"]["percent"]),
        )
        if found["value"] is not None
    ]
    for anchor in figures["anchors"]:
        value, margin = anchor["agreement"], anchor["margin"]
        low, high = (None, None) if margin is None else (value - margin, value + margin)
        rows.append(Estimate(anchor["name"], value, low, high))
    return whiskers(rows, line=LEAST_AGREEMENT)
