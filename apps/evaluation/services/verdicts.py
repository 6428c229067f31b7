"""Verdicts of people on single answers: from the inbox, and on the samples of a run."""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest, one_line
from apps.evaluation.models import FlaggedAnswer, Verdict
from apps.evaluation.selectors.verdicts import (
    baseline_answers,
    last_verdict,
    pair_batch,
    pair_id,
    verdicts_of,
    verdicts_of_flagged,
)
from apps.evaluation.services.claiming import held_by_other
from apps.labeling.models import Comparison, Response
from apps.labeling.services import batch_queue, batch_take_back
from apps.training.models import Run, RunInput, Sample
from apps.training.selectors import checkpoint_for_use

_Value = Verdict.Value
_State = FlaggedAnswer.State
VALUES = (_Value.FINE, _Value.BAD, _Value.UNSAFE, _Value.WRONG_REWARD, _Value.LABELING)
_MOST = longest(Verdict, "note")


@transaction.atomic
def flagged_judge(
    *, flagged: FlaggedAnswer, value: str, user: User, note: str = "", again: bool = False
) -> Verdict:
    """Judge an entry of the inbox; it then waits no longer.

    `Conflict` where somebody else has it open (`claimed`), or has judged it since
    (`judged_meanwhile`): a second opinion is given with `again`, never by accident. One's own
    verdict can be changed at any time; the newest counts.
    """
    _check(value, note)
    rows = FlaggedAnswer.objects.select_for_update(of=("self",))
    locked = rows.select_related("claimed_by", "sample__run", "run").get(pk=flagged.pk)
    said = verdicts_of_flagged([locked])[locked.pk]
    others = [row for row in said if row.by_id != user.pk]
    if others and not again and not any(row.by_id == user.pk for row in said):
        raise Conflict(
            f"{others[-1].by_name} has judged this answer: {others[-1].get_value_display()}. "
            "Nothing was stored.",
            code="judged_meanwhile",
            field="value",
        )
    if name := held_by_other(locked, user):
        raise Conflict(
            f"{name} has this answer open. Nothing was stored; take the next one.",
            code="claimed",
            field="value",
        )
    return _give(_Target.of(locked.sample, locked), value=value, user=user, note=note)


@transaction.atomic
def sample_judge(*, sample: Sample, value: str, user: User, note: str = "") -> Verdict:
    """Judge a sample of a run, whatever others said of it. Where it waits in the inbox it waits no
    longer."""
    _check(value, note)
    locked = Sample.objects.select_for_update(of=("self",)).select_related("run").get(pk=sample.pk)
    flagged = FlaggedAnswer.objects.select_for_update().filter(sample=locked).first()
    return _give(_Target.of(locked, flagged), value=value, user=user, note=note)


@transaction.atomic
def verdict_undo(*, project: Project, user: User, sample: Sample | None = None) -> Verdict:
    """Take back the person's last verdict that counts, of all or on this sample; the row that says
    so. What was sent to labeling comes out of the queue again. `Conflict` once somebody has voted
    on it, and where the person has no verdict (`nothing_to_undo`)."""
    last = last_verdict(project=project, user=user, sample=sample)
    if last is None:
        raise Conflict("You have no verdict here to take back.", code="nothing_to_undo")
    sent = last.sample if last.value == _Value.LABELING else None
    if sent is not None and not _others_sent(last, sent):
        batch_take_back(project=project, batch=pair_batch(sent))
    flagged = last.flagged
    if last.sample is not None:
        flagged = FlaggedAnswer.objects.select_for_update().filter(sample=last.sample).first()
    return _store(_Target.of(last.sample, flagged), value=_Value.WITHDRAWN, user=user)


@transaction.atomic
def flagged_close(*, project: Project, run_id: str, user: User) -> int:
    """Close what still waits of a run without a verdict; how many. They leave the inbox and can
    still be judged among the run's samples."""
    rows = FlaggedAnswer.objects.filter(project=project, run=run_id, state=_State.WAITING)
    n = rows.update(state=_State.CLOSED, claimed_by=None, claimed_until=None)
    if n:
        audit_record(
            action="inbox.closed",
            actor=user,
            project=project,
            subject=run_id,
            details={"answers": n},
        )
    return n


def _check(value: str, note: str) -> None:
    if value not in VALUES:
        raise DomainError(
            f"value: one of {', '.join(VALUES)}; not '{value}'.",
            code="unknown_verdict",
            field="value",
        )
    if len(note) > _MOST:
        raise DomainError(f"note: at most {_MOST} characters.", field="note")


@dataclass(frozen=True, slots=True)
class _Target:
    """What a verdict is about: a sample, its entry in the inbox, or both."""

    run: Run
    step: int
    sample: Sample | None
    flagged: FlaggedAnswer | None

    @classmethod
    def of(cls, sample: Sample | None, flagged: FlaggedAnswer | None) -> "_Target":
        about = sample or flagged
        assert about is not None  # noqa: S101 — one of the two, by a constraint
        return cls(about.run, about.step, sample, flagged)


def _give(target: _Target, *, value: str, user: User, note: str) -> Verdict:
    if value == _Value.LABELING:
        _send(target.run.project, target.sample)
    return _store(target, value=value, user=user, note=note)


def _store(target: _Target, *, value: str, user: User, note: str = "") -> Verdict:
    sample, flagged = target.sample, target.flagged
    verdict = Verdict.objects.create(
        project=target.run.project,
        sample=sample,
        flagged=flagged if sample is None else None,
        value=value,
        note=one_line(note),
        by=user,
        by_name=str(user)[:150],
    )
    if flagged is not None:
        said = verdicts_of_flagged([flagged])[flagged.pk]
        FlaggedAnswer.objects.filter(pk=flagged.pk).update(
            state=_State.JUDGED if said else _State.WAITING, claimed_by=None, claimed_until=None
        )
    audit_record(
        action="verdict.withdrawn" if value == _Value.WITHDRAWN else "verdict.given",
        actor=user,
        project=target.run.project,
        subject=target.run.pk,
        details={
            "verdict": verdict.get_value_display(),
            "step": target.step,
            "sample": sample.pk if sample is not None else None,
        },
    )
    return verdict


# An answer beside the baseline's, for the people who label.


def _send(project: Project, sample: Sample | None) -> None:
    baseline = baseline_answers(sample.run, [sample]).get(sample.pk) if sample else None
    if sample is None or baseline is None:
        raise Conflict(
            "There is no answer of the baseline to the same prompt, so there is no pair to send.",
            code="no_baseline",
            field="value",
        )
    report = batch_queue(
        project=project,
        rows=[_pair(sample, baseline)],
        batch=pair_batch(sample),
        votes=None,
        priority=0.0,
    )
    known = Comparison.objects.filter(project=project, external_id=pair_id(sample))
    if not report.n_created and not known.exists():
        why = report.problems[0].message if report.problems else "The pair is known"
        raise Conflict(f"Nothing was sent: {why.rstrip('.')}.", code="no_pair", field="value")


def _pair(sample: Sample, baseline: str) -> dict[str, Any]:
    """Which of the two stands as A is drawn by the id, so that its place tells nothing."""
    name = pair_id(sample)
    is_a = hashlib.sha256(name.encode()).digest()[0] & 1
    own, other = ("a", "b") if is_a else ("b", "a")
    model = checkpoint_for_use(sample.run)
    origin = RunInput.objects.filter(run=sample.run, role="sft").first()
    return {
        "id": name,
        "prompt": sample.prompt,
        f"response_{own}": sample.response,
        f"response_{other}": baseline,
        "origin": Response.Origin.MODEL.value,
        f"origin_ref_{own}": model.pk if model else sample.run_id,
        f"origin_ref_{other}": (origin.checkpoint_id if origin else "") or "",
        # Out of the random stratum, on which agreement is computed: somebody chose this answer.
        "stratum": Comparison.Stratum.PRIORITY.value,
    }


def _others_sent(last: Verdict, sample: Sample) -> bool:
    """Whether somebody else's verdict keeps the pair in the queue."""
    said = verdicts_of("sample", [sample.pk]).get(sample.pk, [])
    return any(row.value == _Value.LABELING and row.by_id != last.by_id for row in said)
