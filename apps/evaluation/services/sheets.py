"""Blind audit sheets: drawn once by a seed, judged by people who do not know whose answer it is."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Refused
from apps.common.models import longest, one_line
from apps.evaluation.models import AuditSheet, SheetItem, Verdict
from apps.evaluation.selectors.sheet_sources import Answered, SheetSource, sheet_source
from apps.evaluation.selectors.verdicts import newest_of_each, verdicts_of
from apps.evaluation.services.claiming import claim, held_by_other, unclaimed
from apps.training.models import Run

_State = AuditSheet.State
_Source, _Stratum = SheetItem.Source, SheetItem.Stratum
_Value = Verdict.Value
VALUES = (_Value.FINE, _Value.BAD, _Value.UNSAFE)
N_RANDOM, N_EXTREME, N_BASELINE = 60, 10, 20
MOST = 500  # of each
MOST_PEOPLE = 10
HIGH = 0.9  # the quantile of rewards over which a bad answer is one that the reward loves


@dataclass(frozen=True, slots=True)
class Drawn:
    """An answer for the sheet, before its place."""

    source: str
    stratum: str
    answer: Answered

    @property
    def response(self) -> str:
        is_policy = self.source == _Source.POLICY
        return self.answer.response if is_policy else self.answer.baseline

    @property
    def reward(self) -> float | None:
        is_policy = self.source == _Source.POLICY
        return self.answer.reward if is_policy else self.answer.baseline_reward


def sheet_make(
    *,
    project: Project,
    run: Run,
    user: User,
    n_random: int = N_RANDOM,
    n_extreme: int = N_EXTREME,
    n_baseline: int = N_BASELINE,
    people: int = 1,
    seed: int | None = None,
) -> AuditSheet:
    """Draw a sheet from the answers of a finished run. One is open at a time for a policy, so that
    nobody draws until they like what they see: `Conflict` (sheet_open). Fewer answers than asked
    for make a smaller sheet. Raises `DomainError` naming the field, and then nothing is stored.
    """
    _check_sizes(n_random=n_random, n_extreme=n_extreme, n_baseline=n_baseline, people=people)
    source = sheet_source(run)
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    drawn = draw(source, seed=seed, n_random=n_random, n_extreme=n_extreme, n_baseline=n_baseline)
    rewards = [one.reward for one in source.answers if one.reward is not None]
    sheet = AuditSheet(
        project=project,
        checkpoint=source.policy,
        run=run,
        baseline=source.baseline,
        seed=seed,
        n_random=n_random,
        n_extreme=n_extreme,
        n_baseline=n_baseline,
        people=people,
        n_answers=len(source.answers),
        high_reward=float(np.quantile(rewards, HIGH)) if rewards else None,
        is_whole=source.is_whole,
        created_by=user,
    )
    try:
        with transaction.atomic():
            sheet.save(force_insert=True)
            SheetItem.objects.bulk_create(_items(sheet, drawn))
            audit_record(
                action="sheet.made",
                actor=user,
                project=project,
                subject=sheet.pk,
                details={"run": run.pk, "answers": len(drawn)},
            )
    except IntegrityError as error:
        if "audit_sheet_open_once" not in str(error):
            raise
        raise Conflict(
            "A sheet of this policy is open. Finish it first, or withdraw it and say why.",
            code="sheet_open",
            field="run",
        ) from None
    return sheet


def draw(
    source: SheetSource, *, seed: int, n_random: int, n_extreme: int, n_baseline: int
) -> list[Drawn]:
    """The answers of a sheet, in its order.

    Random answers come first, from all of them, so that they are a simple random sample and their
    bound speaks for the whole; the highest and lowest rewards are taken from what is left. The
    baseline's are drawn at random too, from other prompts as long as there are any. Where a run
    kept its highest, lowest and random answers only, its own choice counts.
    """
    by_seed = random.Random(seed)  # an order, not a secret
    answers = list(source.answers)
    by_seed.shuffle(answers)
    pool = [one for one in answers if one.bucket in ("", "random")]
    found = [Drawn(_Source.POLICY, _Stratum.RANDOM, one) for one in pool[:n_random]]
    chosen = {id(one.answer) for one in found}
    left = [one for one in answers if id(one) not in chosen and one.reward is not None]
    found += _extremes(left, n_extreme)
    beside = [one for one in reversed(answers) if one.baseline.strip()]
    found += [Drawn(_Source.BASELINE, _Stratum.RANDOM, one) for one in beside[:n_baseline]]
    by_seed.shuffle(found)
    return found


def _extremes(left: Sequence[Answered], n: int) -> list[Drawn]:
    """Up to n of the highest and of the lowest rewards; few answers are shared evenly."""
    high = [one for one in left if one.bucket in ("", "high")]
    low = [one for one in left if one.bucket in ("", "low")]
    if any(one.bucket for one in left):
        n_high, n_low = min(n, len(high)), min(n, len(low))
    else:
        n_high = n_low = min(n, len(left) // 2)
    by_reward = sorted(high, key=lambda one: -(one.reward or 0.0))
    found = [Drawn(_Source.POLICY, _Stratum.HIGH, one) for one in by_reward[:n_high]]
    by_reward = sorted(low, key=lambda one: one.reward or 0.0)
    return found + [Drawn(_Source.POLICY, _Stratum.LOW, one) for one in by_reward[:n_low]]


def _items(sheet: AuditSheet, drawn: Sequence[Drawn]) -> list[SheetItem]:
    return [
        SheetItem(
            sheet=sheet,
            place=place,
            source=one.source,
            stratum=one.stratum,
            prompt=list(one.answer.prompt),
            response=one.response,
            reward=one.reward,
        )
        for place, one in enumerate(drawn, start=1)
    ]


def _check_sizes(**sizes: int) -> None:
    least = {"n_random": 1, "people": 1}
    most = {"people": MOST_PEOPLE}
    for name, value in sizes.items():
        low, high = least.get(name, 0), most.get(name, MOST)
        if not low <= value <= high:
            raise DomainError(f"{name}: a whole number from {low} to {high}.", field=name)


# Judging.


def why_not_judge(sheet: AuditSheet, user: User) -> str:
    """Why this person may not judge the sheet; "" where they may. Whoever trained the policy, or
    asked it for these answers, has read them before and wants them to be good."""
    if user.pk in (sheet.checkpoint.run.created_by_id, sheet.run.created_by_id):
        return (
            "You started the run that trained this policy or asked it for these answers, so the "
            "sheet is judged by somebody else."
        )
    return "" if sheet.state == _State.OPEN else f"The sheet is {sheet.get_state_display()}."


@transaction.atomic
def item_next(*, sheet: AuditSheet, user: User) -> SheetItem | None:
    """Claim the first answer that still wants this person's verdict and that nobody else has open;
    None where none is left for them. Raises `Refused` where they may not judge."""
    sheet = _sheet_to_judge(sheet.pk, user)
    rows = SheetItem.objects.filter(sheet=sheet)
    full = _full(sheet, user)
    wanted = unclaimed(rows.exclude(pk__in=full), user).order_by("place")
    found = wanted.select_for_update(of=("self",), skip_locked=True).first()
    if found is not None:
        claim(rows, found.pk, user)
    return found


def _full(sheet: AuditSheet, user: User) -> list[str]:
    """Answers that want nothing of this person: judged by them, or by enough others."""
    said = verdicts_of("item", list(sheet.items.values_list("pk", flat=True)))
    return [
        str(key)
        for key, rows in said.items()
        if len(rows) >= sheet.people or any(row.by_id == user.pk for row in rows)
    ]


@transaction.atomic
def item_judge(*, item: SheetItem, value: str, user: User, note: str = "") -> Verdict:
    """Judge one answer of an open sheet. One's own verdict can be changed until the sheet is
    finished; what somebody else has open, or enough others have judged, is a `Conflict`."""
    if value not in VALUES:
        raise DomainError(
            f"value: one of {', '.join(VALUES)} on a blind sheet; not '{value}'.",
            code="unknown_verdict",
            field="value",
        )
    if len(note) > longest(Verdict, "note"):
        raise DomainError(f"note: at most {longest(Verdict, 'note')} characters.", field="note")
    open_sheet = _sheet_to_judge(item.sheet_id, user)
    locked = SheetItem.objects.select_for_update(of=("self",)).select_related("claimed_by")
    found = locked.get(pk=item.pk)
    others = [row for row in verdicts_of("item", [found.pk]).get(found.pk, []) if row.by != user]
    if name := held_by_other(found, user):
        raise Conflict(f"{name} has this answer open. Nothing was stored.", code="claimed")
    if len(others) >= open_sheet.people:
        raise Conflict(
            "Others have judged this answer meanwhile. Nothing was stored.", code="judged_meanwhile"
        )
    return _store(open_sheet, found, value, user, note)


def _store(sheet: AuditSheet, item: SheetItem, value: str, user: User, note: str) -> Verdict:
    SheetItem.objects.filter(pk=item.pk).update(claimed_by=None, claimed_until=None)
    return Verdict.objects.create(
        project=sheet.project,
        item=item,
        value=value,
        note=one_line(note),
        by=user,
        by_name=str(user)[:150],
    )


@transaction.atomic
def item_undo(*, sheet: AuditSheet, user: User) -> SheetItem:
    """Take back the person's last verdict on this sheet; its answer, which is open for them again.
    `Conflict` where there is none."""
    sheet = _sheet_to_judge(sheet.pk, user)
    newest = newest_of_each(Verdict.objects.filter(item__sheet=sheet, by=user), "item")
    kept = [row for row in newest if row.value != _Value.WITHDRAWN]
    last = max(kept, key=lambda row: row.pk, default=None)
    if last is None or last.item is None:
        raise Conflict("You have no verdict here to take back.", code="nothing_to_undo")
    _store(sheet, last.item, _Value.WITHDRAWN, user, "")
    claim(SheetItem.objects.filter(sheet=sheet), last.item.pk, user)
    return last.item


def _sheet_to_judge(sheet_id: str, user: User) -> AuditSheet:
    """The sheet as it is now, locked against being finished meanwhile. `Refused` (not_a_judge)
    where the person may not judge it, `Conflict` (sheet_ended) where it has ended."""
    rows = AuditSheet.objects.select_for_update(of=("self",), no_key=True)
    found = rows.select_related("checkpoint__run", "run", "project").get(pk=sheet_id)
    why = why_not_judge(found, user)
    if why and found.state == _State.OPEN:
        raise Refused(why, code="not_a_judge")
    if why:
        raise Conflict(why, code="sheet_ended")
    return found


@transaction.atomic
def sheet_finish(*, sheet: AuditSheet, user: User) -> AuditSheet:
    """Close the sheet and show what it came to. Only once every answer has the verdicts that were
    asked for: stopping when one likes the figures would make the bound wrong."""
    locked = _lock_open(sheet)
    said = verdicts_of("item", list(locked.items.values_list("pk", flat=True)))
    left = locked.items.count() - sum(len(rows) >= locked.people for rows in said.values())
    if left:
        raise Conflict(
            f"{left} answer{'s' if left > 1 else ''} still without the verdicts asked for. The "
            "result is shown once all are judged.",
            code="not_judged",
        )
    return _end(locked, _State.FINISHED, action="sheet.finished", user=user)


@transaction.atomic
def sheet_withdraw(*, sheet: AuditSheet, user: User, reason: str) -> AuditSheet:
    """Close the sheet without a result. It stays in the list with its reason."""
    said = one_line(reason)
    if not said or len(said) > longest(AuditSheet, "reason"):
        raise DomainError(
            f"reason: say why, in at most {longest(AuditSheet, 'reason')} characters.",
            field="reason",
        )
    return _end(
        _lock_open(sheet), _State.WITHDRAWN, action="sheet.withdrawn", user=user, reason=said
    )


def _lock_open(sheet: AuditSheet) -> AuditSheet:
    locked = AuditSheet.objects.select_for_update().get(pk=sheet.pk)
    if locked.state != _State.OPEN:
        raise Conflict(f"The sheet is {locked.get_state_display()}.", code="sheet_ended")
    return locked


def _end(sheet: AuditSheet, state: str, *, action: str, user: User, reason: str = "") -> AuditSheet:
    sheet.state, sheet.reason, sheet.ended_by, sheet.ended_at = state, reason, user, timezone.now()
    sheet.save()
    audit_record(
        action=action,
        actor=user,
        project=sheet.project,
        subject=sheet.pk,
        details={"reason": reason} if reason else {},
    )
    return sheet


def run_uses(run: Run) -> list[str]:
    """What people found out about a run's model that would be lost if it were deleted."""
    sheets = AuditSheet.objects.filter(Q(checkpoint__run=run) | Q(run=run)).count()
    return [f"audit sheets are drawn from it ({sheets})"] if sheets else []
