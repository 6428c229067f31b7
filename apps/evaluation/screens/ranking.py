"""What the page of graded outputs prints: words and a scatter, without queries."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.common.report.blocks import Part, TextView, parts, text_view
from apps.evaluation.selectors.adversarial import RoundCounts, RoundPair
from apps.evaluation.selectors.ranking import Graded
from apps.labeling.texts import excerpt
from measures.blocks import Curve, Example, Series
from measures.messages import plain as plain_text
from workers.contract.numbers import percent, plain

_TONES = {"rated": "good", "review": "warn", "dropped": "bad"}


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output in the table; `mean` is "" before the first grade."""

    number: int
    task: int
    score: str
    mean: str
    grades: str
    state: str
    tone: str
    prompt: str
    answer: str


def rows_shown(outputs: Sequence[Graded]) -> list[OutputRow]:
    return [
        OutputRow(
            number=one.number,
            task=one.task.pk,
            score=plain(one.score),
            mean="" if one.mean is None else plain(one.mean),
            grades=", ".join(map(str, one.grades)),
            state=one.task.get_state_display(),
            tone=_TONES.get(one.task.state, ""),
            prompt=excerpt(one.prompt, 90),
            answer=excerpt(one.response, 160),
        )
        for one in outputs
    ]


def scatter(outputs: Sequence[Graded]) -> Part | None:
    """Score against mean grade of what is graded through; None while fewer than two are."""
    done = sorted(
        (one.score, mean) for one in outputs if one.is_done and (mean := one.mean) is not None
    )
    if len(done) < 2:
        return None
    block = Curve(
        title=f"Score and people's mean grade, {len(done)} outputs",
        series=(
            Series(
                label="one output",
                x=tuple(score for score, _ in done),
                y=tuple(mean for _, mean in done),
                points=True,
            ),
        ),
        x_label="the model's score",
        y_label="mean grade, 1 to 7",
        note="Rising from left to right, the model ranks outputs as people do.",
    )
    return parts([block])[0]


def work_words(n: int, overlap: int, seconds: float, *, measured: bool) -> str:
    """ "300 grades (100 outputs, 3 people each), about 75 minutes of work at 15 s a grade"."""
    grades = n * overlap
    how = "as people here take" if measured else "until people here have shown how long they take"
    return (
        f"{grades:,} grades ({n:,} outputs, {overlap} people each), about "
        f"{_minutes(grades * seconds / 60)} of work at {seconds:.0f} s a grade, {how}"
    )


def pairs_work_words(n: int, overlap: int) -> str:
    return f"{n * overlap:,} votes ({n:,} pairs, {overlap} people each)"


def _minutes(minutes: float) -> str:
    whole = max(1, round(minutes))
    if whole == 1:
        return "a minute"
    if whole < 120:
        return f"{whole} minutes"
    return f"{minutes / 60:.1f} hours"


# What the pages of adversarial rounds print, without queries.


def fooled_words(counts: RoundCounts) -> str:
    """ "Fooled in 14 of 40 decided pairs (22.1–50.5 %)."."""
    share = counts.share
    if not counts.decided:
        return "No pair is decided yet."
    if share.low is None or share.high is None:
        return f"Fooled in {counts.fooled} of {counts.decided} decided pairs."
    return (
        f"Fooled in {counts.fooled} of {counts.decided} decided pairs "
        f"({100 * share.low:.1f}–{percent(share.high)})."
    )


def examples_shown(pairs: Sequence[RoundPair]) -> list[tuple[int, TextView]]:
    """(comparison, the pair to read) of those that fooled the model, highest score first."""
    return [
        (
            pair.comparison.pk,
            text_view(
                Example(
                    prompt=pair.prompt[-1]["content"],
                    answer=plain_text(pair.high),
                    score=pair.high_score,
                    label=pair.votes,
                    other=plain_text(pair.low),
                    other_score=pair.low_score,
                )
            ),
        )
        for pair in pairs
        if pair.is_fooled
    ]
