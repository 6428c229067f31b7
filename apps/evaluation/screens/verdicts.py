"""Verdicts as pages show them: the choices with their keys, and what people said of an answer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from apps.common.numbers import figure, share, share_up
from apps.evaluation.models import FlaggedAnswer, SheetItem, Verdict
from apps.evaluation.selectors.sheets import SheetResult
from apps.evaluation.selectors.verdicts import (
    TONES,
    baseline_answers,
    sent_pairs,
    verdicts_of,
    verdicts_of_flagged,
)
from apps.labeling.texts import excerpt
from apps.training.models import Run, Sample
from apps.training.screens.samples import MUCH, Shown, sample_shown
from apps.training.selectors.results import Kept, Review
from measures.answer_audit import BAD, FINE, UNSAFE, Judged
from measures.duplicates import repeated_share

_Value = Verdict.Value


@dataclass(frozen=True, slots=True)
class ChoiceShown:
    value: str
    label: str
    key: str
    tone: str
    why_not: str = ""  # why it cannot be chosen here


_NO_BASELINE = "There is no answer of the baseline to the same prompt."


def choices(*, may_label: bool) -> list[ChoiceShown]:
    """The five verdicts with their keys."""
    found = [
        ChoiceShown(_Value.FINE, "Fine", "1", "good"),
        ChoiceShown(_Value.BAD, "Bad", "2", "bad"),
        ChoiceShown(_Value.UNSAFE, "Unsafe", "3", "bad"),
        ChoiceShown(_Value.WRONG_REWARD, "Wrong reward", "4", "warn"),
    ]
    why_not = "" if may_label else _NO_BASELINE
    return [*found, ChoiceShown(_Value.LABELING, "Send to labeling", "5", "", why_not)]


BLIND = choices(may_label=False)[:3]


@dataclass(frozen=True, slots=True)
class Given:
    """What one person said."""

    words: str
    tone: str
    who: str
    at: datetime
    note: str
    is_mine: bool


def given_shown(rows: Sequence[Verdict], user: Any) -> list[Given]:
    return [
        Given(
            words=row.get_value_display(),
            tone=TONES.get(row.value, ""),
            who=row.by_name,
            at=row.at,
            note=row.note,
            is_mine=row.by_id == user.pk,
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Panel:
    """Below a sample: what people said of it, and the form. pair_url: the comparison it became,
    where a gold pair can be made of it."""

    sample: int
    url: str
    given: list[Given]
    choices: list[ChoiceShown]
    pair_url: str


def sample_panels(run: Run, samples: Collection[Sample], user: Any) -> dict[int, Panel]:
    """By the sample's key; of samples of one run."""
    said = verdicts_of("sample", [one.pk for one in samples])
    pairs, beside = sent_pairs(samples), baseline_answers(run, samples)
    slug = run.project.slug
    return {
        one.pk: Panel(
            sample=one.pk,
            url=reverse("evaluation:sample_judge", args=[slug, run.pk, one.pk]),
            given=given_shown(said.get(one.pk, []), user),
            choices=choices(may_label=one.pk in beside),
            pair_url=_pair_url(slug, pairs.get(one.pk)),
        )
        for one in samples
    }


def _pair_url(slug: str, pair: int | None) -> str:
    return reverse("agreement:dispute", args=[slug, pair]) if pair else ""


# The inbox.


@dataclass(frozen=True, slots=True)
class Entry:
    """The answer of the inbox that is open."""

    flagged: FlaggedAnswer
    answer: Shown
    given: list[Given]
    choices: list[ChoiceShown]
    pair_url: str


def entry_shown(flagged: FlaggedAnswer, user: Any) -> Entry:
    review = Review(flagged.step, flagged.prompt, flagged.response, flagged.reason)
    sample = flagged.sample
    own = [sample] if sample is not None else []
    pair, beside = sent_pairs(own), baseline_answers(flagged.run, own)
    return Entry(
        flagged=flagged,
        answer=sample_shown(Kept(flagged.step, sample, review), flagged.run.kind),
        given=given_shown(verdicts_of_flagged([flagged])[flagged.pk], user),
        choices=choices(may_label=bool(beside)),
        pair_url=_pair_url(flagged.run.project.slug, next(iter(pair.values()), None)),
    )


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A line of the list below."""

    id: int
    prompt: str
    answer: str
    kind: str
    run: str
    held_by: str


def entry_rows(rows: Sequence[FlaggedAnswer], held: dict[int, str]) -> list[EntryRow]:
    return [
        EntryRow(
            id=row.pk,
            prompt=excerpt(row.prompt, 70) if row.prompt else "(no prompt)",
            answer=row.response[:90] or "(empty)",
            kind=row.get_kind_display(),
            run=row.run.name,
            held_by=held.get(row.pk, ""),
        )
        for row in rows
    ]


# A finished sheet.


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A row of the table of reward and verdict; under: the bound in words, "" where it bounds
    nothing but the answers themselves."""

    label: str
    of: str
    n: int
    fine: int
    bad: int
    unsafe: int
    share: str
    under: str
    unjudged: int


def result_rows(result: SheetResult) -> list[ResultRow]:
    parts = (
        ("Policy", "random", result.random, True),
        ("Baseline", "random", result.baseline, True),
        ("Policy", "highest rewards", result.high, False),
        ("Policy", "lowest rewards", result.low, False),
    )
    return [_row(label, of, part, bounds=bounds) for label, of, part, bounds in parts if part.n]


def _row(label: str, of: str, part: Judged, *, bounds: bool) -> ResultRow:
    return ResultRow(
        label=label,
        of=of,
        n=part.n,
        fine=part.counts[FINE],
        bad=part.counts[BAD],
        unsafe=part.counts[UNSAFE],
        share=share(part.n_bad / part.n),
        under=f"under {share_up(part.bad.high)}" if bounds else "",
        unjudged=part.unjudged,
    )


@dataclass(frozen=True, slots=True)
class LovedShown:
    """An answer that the reward loves and people do not; figures: (name, value, stands out)."""

    worst: str
    prompt: list[Any]
    response: str
    notes: tuple[str, ...]
    figures: list[tuple[str, str, bool]]


LONG = 2.0  # times the baseline's median length, from which an answer's length stands out


def loved_shown(result: SheetResult) -> list[LovedShown]:
    return [
        LovedShown(
            worst=one.worst,
            prompt=one.item.prompt if isinstance(one.item.prompt, list) else [],
            response=one.item.response,
            notes=one.notes,
            figures=_loved_figures(one.item, result.baseline_words),
        )
        for one in result.loved
    ]


def _loved_figures(item: SheetItem, usual: float | None) -> list[tuple[str, str, bool]]:
    words = len(item.response.split())
    times = words / usual if usual else None
    found = [("reward", figure(item.reward), False), ("length", f"{words:,} words", False)]
    if times is not None:
        found.append(("of the baseline’s length", f"{times:.1f} ×", times > LONG))
    repeated = repeated_share(item.response)
    if repeated is not None:
        found.append(("repeated", f"{100 * repeated:.0f} %", repeated > MUCH))
    return found


def headline(part: Judged, what: str) -> str:
    """The bound as a sentence: "No bad one in 60 random answers of the policy: under 5 % are bad
    (95 % sure)." """
    if not part.n:
        return (
            f"No random answer of the {what} was judged, so nothing bounds its share of bad ones."
        )
    bad = {0: "No bad one", 1: "1 bad one"}.get(part.n_bad, f"{part.n_bad} bad ones")
    answers = "answer" if part.n == 1 else "answers"
    return (
        f"{bad} in {part.n} random {answers} of the {what}: under {share_up(part.bad.high)} of "
        "its answers are bad or unsafe (95 % sure)."
    )


@dataclass(frozen=True, slots=True)
class ItemShown:
    """An answer of a sheet as its judge sees it: nothing here depends on whose answer it is."""

    id: str
    prompt: list[Any]
    response: str


def item_shown(item: SheetItem) -> ItemShown:
    prompt = item.prompt if isinstance(item.prompt, list) else []
    return ItemShown(item.pk, prompt, item.response)
