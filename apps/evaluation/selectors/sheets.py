"""Audit sheets: how far people are, and what a finished one allows to say of a policy."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.evaluation.models import AuditSheet, SheetItem, Verdict
from apps.evaluation.selectors.verdicts import newest_of_each, verdicts_of
from apps.training.models import Checkpoint
from measures.answer_audit import NOT_FINE, Judged, judged, worst_of

_State = AuditSheet.State
_Source, _Stratum = SheetItem.Source, SheetItem.Stratum


@dataclass(frozen=True, slots=True)
class SheetProgress:
    """n answers; done: with as many verdicts as were asked for; people: (name, answers judged)."""

    n: int
    done: int
    people: tuple[tuple[str, int], ...]

    @property
    def is_complete(self) -> bool:
        return self.done >= self.n


@dataclass(frozen=True, slots=True)
class Loved:
    """An answer that the reward puts over its 0.9 quantile and people call bad or unsafe."""

    item: SheetItem
    worst: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SheetResult:
    """What a finished sheet says. Each answer counts once, by its worst verdict.

    random: the policy's random answers, whose bound speaks for the policy; baseline: the same of
    its baseline; high, low: of the extreme rewards, which speak for themselves only. loved: of
    `n_high` judged answers over the 0.9 quantile those that people call bad. split: answers whose
    judges differ, of `n_twice` that several people judged.
    """

    sheet: AuditSheet
    random: Judged
    baseline: Judged
    high: Judged
    low: Judged
    loved: tuple[Loved, ...]
    n_high: int
    n_twice: int
    split: int
    people: int
    baseline_words: float | None  # the median length of the baseline's answers


def sheets_of(project: Project) -> QuerySet[AuditSheet]:
    """Newest first."""
    rows = AuditSheet.objects.filter(project=project)
    return rows.select_related("checkpoint__run", "run", "created_by", "baseline__run").order_by(
        "-created_at", "-pk"
    )


def sheet_get(*, project: Project, sheet_id: str) -> AuditSheet:
    """Raises `Missing`."""
    rows = sheets_of(project).select_related("ended_by", "project")
    found = rows.filter(pk=sheet_id.replace("\x00", "")).first()
    if found is None:
        raise Missing("There is no such audit sheet in this project.", field="sheet")
    return found


def item_get(*, sheet: AuditSheet, item_id: str) -> SheetItem:
    """Raises `Missing`."""
    found = sheet.items.filter(pk=item_id.replace("\x00", "")).first()
    if found is None:
        raise Missing("There is no such answer on this sheet.", field="item")
    return found


def progress_of(sheet: AuditSheet) -> SheetProgress:
    return outlines_of([sheet])[sheet.pk].progress


@dataclass(frozen=True, slots=True)
class Outline:
    """A line of the list; `random` of a finished sheet only."""

    progress: SheetProgress
    random: Judged | None


def outlines_of(sheets: Sequence[AuditSheet]) -> dict[str, Outline]:
    """By the sheet's id, with two statements for all of them."""
    items = SheetItem.objects.filter(sheet__in=sheets)
    rows = list(items.order_by("pk").values_list("sheet_id", "pk", "source", "stratum"))
    newest = newest_of_each(Verdict.objects.filter(item__sheet__in=sheets), "item")
    said: dict[str, list[Verdict]] = defaultdict(list)
    for row in newest:
        if row.value != Verdict.Value.WITHDRAWN and row.item_id is not None:
            said[row.item_id].append(row)
    return {
        sheet.pk: _outline(sheet, [row[1:] for row in rows if row[0] == sheet.pk], said)
        for sheet in sheets
    }


def _outline(
    sheet: AuditSheet,
    items: Sequence[tuple[str, str, str]],
    said: Mapping[str, Sequence[Verdict]],
) -> Outline:
    names: Counter[str] = Counter()
    for key, _, _ in items:
        names.update(row.by_name for row in said.get(key, ()))
    done = sum(len(said.get(key, ())) >= sheet.people for key, _, _ in items)
    wanted = (_Source.POLICY, _Stratum.RANDOM)
    random = [[row.value for row in said.get(key, ())] for key, *of in items if tuple(of) == wanted]
    return Outline(
        SheetProgress(len(items), done, tuple(sorted(names.items()))),
        judged(random) if sheet.state == _State.FINISHED else None,
    )


def result_of(sheet: AuditSheet) -> SheetResult | None:
    """None until the sheet is finished: nobody may stop it by what it would say."""
    if sheet.state != _State.FINISHED:
        return None
    items = list(sheet.items.all())
    said: dict[int | str, list[Verdict]] = verdicts_of("item", [item.pk for item in items])

    def values(item: SheetItem) -> list[str]:
        return [row.value for row in said.get(item.pk, [])]

    def part(source: str, stratum: str) -> Judged:
        chosen = [one for one in items if (one.source, one.stratum) == (source, stratum)]
        return judged([values(item) for item in chosen])

    over = _over(sheet, [item for item in items if values(item)])
    twice = [values(item) for item in items if len(values(item)) > 1]
    return SheetResult(
        sheet=sheet,
        random=part(_Source.POLICY, _Stratum.RANDOM),
        baseline=part(_Source.BASELINE, _Stratum.RANDOM),
        high=part(_Source.POLICY, _Stratum.HIGH),
        low=part(_Source.POLICY, _Stratum.LOW),
        loved=tuple(
            Loved(item, worst, tuple(row.note for row in said[item.pk] if row.note))
            for item in over
            if (worst := worst_of(values(item))) in NOT_FINE
        ),
        n_high=len(over),
        n_twice=len(twice),
        split=sum(len(set(one)) > 1 for one in twice),
        people=len({row.by_name for rows in said.values() for row in rows}),
        baseline_words=_median_words(items),
    )


def _median_words(items: Sequence[SheetItem]) -> float | None:
    words = [len(item.response.split()) for item in items if item.source == _Source.BASELINE]
    return float(median(words)) if words else None


def _over(sheet: AuditSheet, items: Sequence[SheetItem]) -> list[SheetItem]:
    """The policy's judged answers over the 0.9 quantile of all its rewards, the highest first."""
    limit = sheet.high_reward
    if limit is None:
        return []
    found = [
        (item.reward, item)
        for item in items
        if item.source == _Source.POLICY and item.reward is not None and item.reward > limit
    ]
    return [item for _, item in sorted(found, key=lambda pair: -pair[0])]


def audit_of(checkpoint: Checkpoint) -> SheetResult | None:
    """What the newest finished sheet of this policy says, for whoever decides about it; None where
    no sheet of it has been finished."""
    rows = AuditSheet.objects.filter(checkpoint=checkpoint, state=_State.FINISHED)
    newest = rows.order_by("-ended_at", "-pk").first()
    return result_of(newest) if newest is not None else None
