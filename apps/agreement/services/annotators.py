"""Figures about single annotators: computing and storing them; leaving somebody's votes out."""

from typing import Any

import numpy as np
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.accounts.services import audit_record
from apps.agreement.models import AnnotatorReport
from apps.agreement.reports.person import Person, people_of
from apps.agreement.selectors.annotators import VERSION, AnnotatorVotes, annotator_votes
from apps.agreement.selectors.votes import newest_vote_id
from apps.common.errors import DomainError, Missing
from apps.common.models import longest
from apps.labeling.models import Annotator, LabelingSettings, Vote
from measures.annotators import crowd_figures
from measures.annotators.sides import pulls_of
from workers.contract.reasons import reason_words

_BATCH = 500


def annotator_reports_refresh(*, project: Project) -> int:
    """Compute and store the report of everybody with votes; returns how many people that are.

    Reports of people without votes are taken away. Flags do nothing by themselves.
    """
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    newest = newest_vote_id(project=project)
    crowd = annotator_votes(project=project)
    people = people_of(crowd_figures(crowd.work, crowd.repeats, fast_ms=settings.fast_ms))
    pulls = _pulls(crowd)
    now = timezone.now()
    rows = [
        AnnotatorReport(
            project=project,
            user_id=key,
            computed_at=now,
            n_votes=person.n_votes,
            figures=person.figures
            | {
                "version": VERSION,
                "pull": pull,
                "n_tests": person.n_tests,
                "last_vote_id": newest,
            },
            flags=_flags(person),
        )
        for key, person, pull in zip(crowd.people.tolist(), people, pulls, strict=True)
    ]
    with transaction.atomic():
        # One refresh of a project at a time: two would lock each other's rows in turn.
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        gone = AnnotatorReport.objects.filter(project=project)
        gone.exclude(user__in=crowd.people.tolist()).delete()
        AnnotatorReport.objects.bulk_create(
            rows,
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["project", "user"],
            update_fields=["computed_at", "n_votes", "figures", "flags"],
        )
    return len(rows)


def _flags(person: Person) -> list[dict[str, Any]]:
    return [
        {"kind": str(flag.kind), "label": flag.label, "sentence": flag.sentence, "p": flag.p}
        for flag in person.flags
    ]


def _pulls(crowd: AnnotatorVotes) -> list[dict[str, Any]]:
    """Each person's pull to the left, drawn towards the project's, as a chance between equals."""
    work = crowd.work
    a_left = (work.choice == 0) == (work.left == 1)
    found = pulls_of(work.who, work.pair, work.left, a_left, work.n_people)
    why = reason_words(found.undefined) or "no vote with a known side"

    def chance(logit: float) -> float:
        return float(1 / (1 + np.exp(-logit)))

    return [
        {"value": None, "n": 0, "undefined": why}
        if not found.n[k]
        else {
            "value": chance(found.value[k]),
            "low": chance(found.low[k]),
            "high": chance(found.high[k]),
            "n": int(found.n[k]),
            "project": chance(found.centre or 0.0),
            "undefined": None,
        }
        for k in range(work.n_people)
    ]


@transaction.atomic
def annotator_leave_out(*, project: Project, user: User, by: User, reason: str) -> Annotator:
    """From now on this person's votes enter no new dataset; votes, decisions and frozen datasets
    stay as they are. Imported people too. A new reason replaces the old one. Errors: `Missing` for
    somebody without a place or a vote here, `DomainError` on `reason`."""
    reason = reason.strip()
    most = longest(Annotator, "left_out_reason")
    if not reason:
        raise DomainError(
            "Say why: it stands beside every dataset made without them.", field="reason"
        )
    if len(reason) > most:
        raise DomainError(f"At most {most} characters.", field="reason")
    if "\x00" in reason:
        raise DomainError("A NUL character cannot be stored.", field="reason")
    row = _row_lock(project, user)
    if row.left_out_reason != reason or row.left_out_at is None:
        row.left_out_at = row.left_out_at or timezone.now()
        row.left_out_reason = reason
        row.save(update_fields=["left_out_at", "left_out_reason", "updated_at"])
        _record("annotator.left_out", by, row, {"reason": reason})
    return row


@transaction.atomic
def annotator_take_in(*, project: Project, user: User, by: User) -> Annotator:
    """Undo `annotator_leave_out`; for somebody who is not left out it changes nothing."""
    row = _row_lock(project, user)
    if row.left_out_at is not None:
        reason = row.left_out_reason
        row.left_out_at, row.left_out_reason = None, ""
        row.save(update_fields=["left_out_at", "left_out_reason", "updated_at"])
        _record("annotator.taken_in", by, row, {"reason": reason})
    return row


def _row_lock(project: Project, user: User) -> Annotator:
    """The person's row in the project, made if need be, locked until the transaction ends."""
    here = Membership.objects.filter(project=project, user=user).exists()
    if not here and not Vote.objects.filter(project=project, annotator=user).exists():
        raise Missing("There is no such person in this project.", field="user")
    Annotator.objects.get_or_create(project=project, user=user)
    return Annotator.objects.select_for_update(no_key=True).get(project=project, user=user)


def _record(action: str, by: User, row: Annotator, details: dict[str, Any]) -> None:
    audit_record(
        action=action,
        actor=by,
        project=row.project,
        subject=row.user,
        details=details,
    )
