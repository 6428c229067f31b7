"""What the agreement page prints: a stored report in, words and SVG geometry out."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.models import AgreementReport

ROW = 26  # pixels per row of a chart

# The horizontal bars of vote splits: label, bar, value.
SPLIT_LEFT, SPLIT_BAR, SPLIT_RIGHT = 76, 380, 130
MOST_SPLITS = 14

# The dot-and-whisker chart of percent agreement, on a scale of 30 to 100 %.
SCALE_LEFT, SCALE_WIDTH, SCALE_RIGHT = 260, 360, 76
SCALE_FROM, SCALE_TO = 0.3, 1.0

TONES = {
    "critical": ("bad", "circle-alert"),
    "bad": ("bad", "circle-alert"),
    "unsure": ("warn", "triangle-alert"),
    "too_few": ("", "info"),
    "undefined": ("", "info"),
    "no_alarm": ("good", "circle-check"),
}


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    spread: str
    basis: str


@dataclass(frozen=True, slots=True)
class Note:
    tone: str
    icon: str
    sentence: str


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


@dataclass(frozen=True, slots=True)
class Whisker:
    """An estimate: pixels of its value and bounds, and the value in words."""

    y: int
    text_y: int
    label: str
    value: str
    x: float
    low: float | None
    high: float | None
    ours: bool


@dataclass(frozen=True, slots=True)
class WhiskerChart:
    rows: list[Whisker]
    width: int
    height: int
    half: float  # x of 50 %: two coin-flippers on two-way votes
    bad: float  # x of 60 %: agreement under it is bad
    axis_y: int
    value_x: int


def overview(report: AgreementReport) -> dict[str, Any]:
    """The template's context."""
    figures = report.figures
    statistics = figures["statistics"]
    return {
        "tiles": _tiles(report),
        "notes": [_note(statistics["percent"]), _note(statistics["alpha"])],
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
    }


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _maybe_percent(fraction: float | None) -> str:
    return "" if fraction is None else percent(fraction)


def _tiles(report: AgreementReport) -> list[Tile]:
    figures = report.figures
    names = {
        "percent": "Percent agreement",
        "alpha": "Krippendorff’s alpha",
        "fleiss": "Fleiss’ kappa",
        "ac1": "Gwet’s AC1",
    }
    votes = Tile(
        "Votes",
        f"{report.n_votes:,}",
        "",
        f"{figures['n_annotators']:,} people, {report.n_comparisons:,} comparisons",
    )
    return [votes] + [
        _estimate_tile(names[key], figures["statistics"][key], as_percent=key == "percent")
        for key in names
    ]


def _estimate_tile(name: str, estimate: dict[str, Any], *, as_percent: bool) -> Tile:
    if estimate["value"] is None:
        return Tile(name, "undefined", "", estimate["undefined"])

    def shown(value: float) -> str:
        return f"{100 * value:.1f}" if as_percent else f"{value:.3f}".replace("-", "−")

    unit = " %" if as_percent else ""
    spread = estimate["no_interval"] or ""
    if estimate["low"] is not None:
        spread = f"{shown(estimate['low'])}–{shown(estimate['high'])}"
    return Tile(
        name, shown(estimate["value"]) + unit, spread, f"n = {estimate['n_items']:,} comparisons"
    )


def _note(estimate: dict[str, Any]) -> Note:
    tone, icon = TONES[estimate["level"]]
    return Note(tone, icon, estimate["sentence"])


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


def anchor_chart(figures: dict[str, Any]) -> WhiskerChart:
    """This project's percent agreement above published ones."""
    rows: list[tuple[str, float, float | None, float | None, bool]] = []
    for label, estimate in (
        ("This project", figures["statistics"]["percent"]),
        ("This project, A or B votes only", figures["two_way"]["percent"]),
    ):
        if estimate["value"] is not None:
            rows.append((label, estimate["value"], estimate["low"], estimate["high"], True))
    for anchor in figures["anchors"]:
        value, margin = anchor["agreement"], anchor["margin"]
        low, high = (None, None) if margin is None else (value - margin, value + margin)
        rows.append((anchor["name"], value, low, high, False))

    def at(fraction: float) -> float:
        place = (fraction - SCALE_FROM) / (SCALE_TO - SCALE_FROM)
        return round(SCALE_LEFT + SCALE_WIDTH * min(max(place, 0.0), 1.0), 1)

    width = SCALE_LEFT + SCALE_WIDTH + SCALE_RIGHT
    axis_y = len(rows) * ROW + 4
    return WhiskerChart(
        rows=[
            Whisker(
                y=place * ROW + 14,
                text_y=place * ROW + 18,
                label=label,
                value=percent(value),
                x=at(value),
                low=None if low is None else at(low),
                high=None if high is None else at(high),
                ours=ours,
            )
            for place, (label, value, low, high, ours) in enumerate(rows)
        ],
        width=width,
        height=axis_y + 22,
        half=at(0.5),
        bad=at(0.6),
        axis_y=axis_y,
        value_x=width - 4,
    )
