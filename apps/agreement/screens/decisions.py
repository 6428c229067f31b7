"""What the page of decisions prints: previews and comparisons in, words and SVG geometry out."""

from dataclasses import dataclass
from typing import Any

from apps.agreement.models import ConsensusReport
from apps.agreement.selectors.decisions import RulePreview
from apps.common.numbers import share as percent
from apps.common.report.blocks import Part, part_of
from apps.labeling.models import DecideBy, Decision
from measures.blocks import Bars, Curve, Series
from measures.estimate import Interval

LABELS = {"votes": "Counted votes", "wawa": "Wawa"} | dict(DecideBy.choices)

OUTCOME_WORDS = {
    Decision.Outcome.ACCEPTED: "Accepted",
    Decision.Outcome.CONTESTED: "Contested",
    Decision.Outcome.NEEDS_VOTES: "Needs more votes",
    Decision.Outcome.NEEDS_REVIEW: "Needs review",
    Decision.Outcome.ADJUDICATED: "Adjudicated",
    Decision.Outcome.DROPPED: "Dropped",
}


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """A row of the preview: what is counted, and its figure with what it is of."""

    name: str
    value: str
    detail: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A row of the comparison of ways to decide; empty texts where nothing can be said."""

    method: str
    label: str
    kept: str
    kept_percent: str
    chance: str
    gold_all: str
    gold_kept: str
    gold_n: str
    log_loss: str
    same: str
    sentence: str
    calibrated: bool | None
    is_current: bool
    recommended: bool


def interval(value: Interval | dict[str, Any] | None) -> str:
    """ "95.1 % (92.0–97.3)" of a share."""
    if value is None:
        return "—"
    get = value.get if isinstance(value, dict) else lambda name: getattr(value, name)
    if get("value") is None:
        return "—"
    if get("low") is None:
        return percent(get("value"))
    return f"{percent(get('value'))} ({100 * get('low'):.1f}–{100 * get('high'):.1f})"


def preview_lines(shown: RulePreview) -> list[PreviewRow]:
    """Kept, passed by chance, right on gold, and what would change."""
    if not shown.n:
        return []
    kept = shown.kept / shown.n
    lines = [
        PreviewRow(
            "Accepted", f"{shown.kept:,}", f"of {shown.n:,} comparisons with votes, {percent(kept)}"
        ),
        PreviewRow(
            "Accepted by chance (random voters)",
            percent(shown.chance),
            "of the same comparisons, voting A or B at random as often as people did",
            "bad" if (shown.chance or 0) > 0.999 else "warn" if (shown.chance or 0) > 0.5 else "",
        ),
        PreviewRow(
            "Right on gold pairs, of those accepted",
            interval(shown.gold),
            f"n = {shown.gold.n:,}" if shown.gold else "no accepted comparison has a known answer",
        ),
        PreviewRow(
            "Not accepted",
            f"{shown.n - shown.kept:,}",
            f"{shown.outcomes.get('needs_votes', 0):,} ask for more votes, "
            f"{shown.outcomes.get('contested', 0):,} are contested",
        ),
    ]
    if shown.newly_accepted or shown.taken_back or shown.flipped:
        lines.append(
            PreviewRow(
                "Change from current rule",
                f"{shown.newly_accepted + shown.taken_back + shown.flipped:,} change",
                f"{shown.newly_accepted:,} newly accepted, "
                f"{shown.taken_back:,} no longer accepted, "
                f"{shown.flipped:,} with another winner",
            )
        )
    else:
        lines.append(PreviewRow("Change from current rule", "no change"))
    return lines


def ways(report: ConsensusReport, current: str) -> list[MethodRow]:
    figures = report.figures
    return [_way(row, figures, current) for row in figures["ways"]]


def _way(row: dict[str, Any], figures: dict[str, Any], current: str) -> MethodRow:
    check = row["check"] or {}
    gold = row["gold"] or {}
    loss = check.get("log_loss")
    return MethodRow(
        method=row["method"],
        label=LABELS[row["method"]],
        kept=f"{row['kept']:,}",
        kept_percent=percent(row["kept"] / row["n"]) if row["n"] else "—",
        chance=percent(row["chance"]),
        gold_all=interval(gold.get("all")),
        gold_kept=interval(gold.get("kept")),
        gold_n=f"{gold['n']:,}" if gold else "",
        log_loss="—" if loss is None else f"{loss:.3f}",
        same=percent(row["same_as_counting"]),
        sentence=check.get("sentence", ""),
        calibrated=check.get("calibrated"),
        is_current=row["method"] == current,
        recommended=row["method"] == figures["recommended"],
    )


def diagrams(report: ConsensusReport) -> list[Part]:
    """Predicted against observed shares of held-back votes, one per model that could be checked."""
    made = []
    for row in report.figures["ways"]:
        bars = (row["check"] or {}).get("bars") or []
        if bars:
            series = Series(
                label=LABELS[row["method"]],
                x=tuple(bar["predicted"] for bar in bars),
                y=tuple(bar["observed"] for bar in bars),
                points=True,
            )
            block = Curve(
                title=LABELS[row["method"]],
                series=(series,),
                x_label="predicted share of a vote",
                y_label="share that happened",
                diagonal=True,
                note=f"{row['check']['sentence'].capitalize()}.",
            )
            made.append(part_of(block, small=True))
    return made


def outcome_bars(tally: dict[str, int]) -> Part | None:
    total = sum(tally.values())
    if not total:
        return None
    counts = [(words, tally.get(outcome, 0)) for outcome, words in OUTCOME_WORDS.items()]
    return part_of(
        Bars(
            title="",
            rows=tuple((words, (n,)) for words, n in counts),
            said=tuple(f"{n:,} ({percent(n / total)})" for _, n in counts),
        )
    )


COLUMNS = (
    "way to decide",
    "comparisons",
    "kept",
    "accepted by chance",
    "gold pairs",
    "right on gold pairs",
    "right on kept gold pairs",
    "log loss of held-back votes",
    "same as counting",
    "calibrated",
)


def csv_rows(report: ConsensusReport) -> list[dict[str, Any]]:
    rows = []
    for row in report.figures["ways"]:
        gold, check = row["gold"] or {}, row["check"] or {}
        values = (
            LABELS[row["method"]],
            row["n"],
            row["kept"],
            row["chance"],
            gold.get("n"),
            (gold.get("all") or {}).get("value"),
            (gold.get("kept") or {}).get("value"),
            check.get("log_loss"),
            row["same_as_counting"],
            check.get("calibrated"),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows
