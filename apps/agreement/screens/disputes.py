"""What the pages of disputes print: reads in, words and SVG geometry out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apps.agreement.models import Ruling
from apps.agreement.selectors.disputes import Batch, CauseCount
from apps.common.numbers import points as signed
from apps.common.numbers import share as percent
from apps.common.report.blocks import Part, part_of
from apps.common.report.shares import shares
from apps.labeling.models import Choice, Comparison, Decision
from apps.labeling.services import FLAGS
from measures.blocks import Bars
from measures.estimate import Interval
from workers.contract.reasons import reason_words

STATE_TONES = {"decided": "good", "contested": "warn", "review": "warn", "dropped": "bad"}
CAUSES = [(str(value), str(label)) for value, label in Ruling.Cause.choices]


def spread(interval: Interval) -> str:
    """The bounds, or why there are none."""
    if interval.value is None:
        return reason_words(interval.undefined)
    if interval.low is None or interval.high is None:
        return reason_words(interval.no_interval)
    return f"{100 * interval.low:.1f}–{100 * interval.high:.1f} %".replace("-", "−")


def points(interval: Interval) -> str:
    """A difference in percentage points, with its sign and bounds."""
    if interval.value is None:
        return reason_words(interval.undefined) or "—"
    if interval.low is None or interval.high is None:
        return f"{signed(interval.value)} points ({reason_words(interval.no_interval)})"
    return (
        f"{signed(interval.value)} points ({signed(interval.low)} to {signed(interval.high)}, "
        f"n = {interval.n:,})"
    )


# --- one dispute ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TallyPart:
    """A piece of a bar of 100 parts."""

    label: str
    tone: str
    n: int
    share: float
    x: float


def tally(counts: dict[str, int]) -> list[TallyPart]:
    """Votes per choice as pieces of one bar: A, tie, both bad, B."""
    order = (
        ("a", "A", "a"),
        ("tie", "Tie", "neutral"),
        ("both_bad", "Both bad", "neutral"),
        ("b", "B", "b"),
    )
    total = sum(counts.values())
    parts, x = [], 0.0
    for key, label, tone in order:
        share = 100 * counts.get(key, 0) / total if total else 0.0
        parts.append(TallyPart(label, tone, counts.get(key, 0), share, x))
        x += share
    return parts


def decision_counts(decision: Decision | None) -> dict[str, int]:
    names = ("n_a", "n_b", "n_tie", "n_both_bad")
    values = [getattr(decision, name) if decision else 0 for name in names]
    return dict(zip(Choice.values, values, strict=True))


def posterior_words(decision: Decision | None) -> list[tuple[str, str]]:
    """(choice, chance) where a model of the voters has spoken, likeliest first."""
    if decision is None or decision.posteriors is None:
        return []
    chances = zip(Choice.labels, decision.posteriors, strict=True)
    return [(str(label), percent(p)) for label, p in sorted(chances, key=lambda x: -x[1]) if p > 0]


def why_here(comparison: Comparison, flags: Sequence[str]) -> list[str]:
    """Why somebody should look at this, in sentences."""
    said = []
    if comparison.state == Comparison.State.REVIEW:
        said.append(f"{comparison.review_reason or 'Sent to review'}. Nobody gets it meanwhile.")
    if comparison.state == Comparison.State.CONTESTED:
        said.append("The votes are all in and no choice has the majority that the rule asks for.")
    serious = Counter(flag for flag in flags if flag in FLAGS)
    for flag, n in serious.most_common():
        said.append(f"{n} of its voters flagged it: {FLAGS[flag].lower()}.")
    return said


# --- causes ---------------------------------------------------------------------------------------


def causes_chart(counts: Sequence[CauseCount]) -> Part:
    """A bar for each cause."""
    n_of: Counter[str] = Counter()
    for row in counts:
        n_of[row.cause] += row.n
    total = sum(n_of.values())
    return part_of(
        Bars(
            title="",
            rows=tuple((label.capitalize(), (n_of[cause],)) for cause, label in CAUSES),
            said=tuple(f"{n_of[c]:,} ({percent(n_of[c] / total, 0)})" for c, _ in CAUSES)
            if total
            else (),
        )
    )


def causes_over(counts: Sequence[CauseCount], by: Literal["guideline", "month"]) -> Part:
    """A bar for each guideline version, or month, in parts by cause."""
    table: dict[Any, Counter[str]] = {}
    for row in counts:
        table.setdefault(getattr(row, by), Counter())[row.cause] += row.n
    rows = [
        (
            key if by == "month" else f"Version {key}" if key else "Before version 1",
            tuple(table[key][cause] for cause, _ in CAUSES),
        )
        for key in sorted(table)
    ]
    names = tuple(label.capitalize() for _, label in CAUSES)
    return part_of(Bars(title="", rows=tuple(rows), parts=names))


# --- re-annotation --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchShown:
    batch: Batch
    chart: Part | None
    difference: str
    expected: str
    beyond: str
    reading: str
    done: int  # percent of the new votes that are in


def batch_shown(batch: Batch) -> BatchShown:
    compared = batch.compared
    wanted = max(batch.wanted, batch.votes)
    return BatchShown(
        batch=batch,
        chart=_rounds_chart(batch) if compared.n else None,
        difference=points(compared.difference),
        expected="" if compared.expected is None else percent(compared.expected),
        beyond="" if compared.beyond is None else points(compared.beyond),
        reading=_reading(batch),
        done=round(100 * batch.votes / wanted) if wanted else 100,
    )


def _reading(batch: Batch) -> str:
    """What the numbers say, in a sentence."""
    compared = batch.compared
    if not compared.n:
        return "No comparison has two votes of the new round yet."
    beyond = compared.beyond
    if beyond is None or beyond.low is None or beyond.high is None:
        return f"Too few comparisons to say ({compared.n:,}): an interval needs at least ten."
    if beyond.low > 0:
        return (
            "People agree more than a second look alone would explain. It may be the new text, or "
            "that some saw the pair before."
        )
    if beyond.high < 0:
        return (
            "People agree less than a second look under the old text would have shown: read some "
            "of these again before going on."
        )
    return (
        "The rise, if any, is no more than what a second look gives by chance. That does not show "
        "that the new text does nothing; it does not show that it helps."
    )


def _rounds_chart(batch: Batch) -> Part:
    compared = batch.compared
    rows = [("Before", compared.before, "plain"), ("After", compared.after, "accent")]
    if compared.expected is not None:
        alone = Interval(value=compared.expected, low=None, high=None, n=compared.n)
        rows.insert(1, ("A second look, unchanged", alone, "plain"))
    return shares(rows)
