"""Importing and deleting results that another program measured."""

import hashlib
from dataclasses import asdict

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.common.models import one_line
from apps.evaluation.formats.outside import OutsideTask, outside_tasks
from apps.evaluation.models import OutsideResult
from apps.evaluation.selectors.outside import outside_result_get
from apps.training.models import Checkpoint
from apps.training.services.kinds import ANSWERING

_LONGEST_TASK, _LONGEST_FILE, _LONGEST_MOMENT = 200, 200, 40


def outside_results_import(
    *, checkpoint: Checkpoint, file_name: str, data: bytes, user: User
) -> list[OutsideResult]:
    """Keep every task of a file as a result of the model that the person chose: whether it is that
    model that was measured, no file can prove. All tasks or none.

    data: results_*.json of lm-evaluation-harness or a zip of its folder, a log of Inspect (.json or
    .eval). Raises `DomainError` naming the field: `bad_results` with the reason, `Conflict`
    (`already_imported`) for a file whose results this model has.
    """
    if checkpoint.run.kind not in ANSWERING:
        raise DomainError(
            "These programs ask a model for answers: choose a policy.",
            code="wrong_kind",
            field="checkpoint",
        )
    tasks = outside_tasks(data)
    for one in tasks:
        if len(one.task) > _LONGEST_TASK:
            raise DomainError(
                f"The file cannot be used: the task name {one.task[:60]}… is longer than "
                f"{_LONGEST_TASK} characters.",
                code="bad_results",
                field="file",
            )
    digest, name = hashlib.sha256(data).hexdigest(), one_line(file_name)[:_LONGEST_FILE]
    with transaction.atomic():
        Checkpoint.objects.select_for_update(of=("self",), no_key=True).get(pk=checkpoint.pk)
        if OutsideResult.objects.filter(checkpoint=checkpoint, file_sha256=digest).exists():
            raise Conflict(
                "This file was imported for this model already.",
                code="already_imported",
                field="file",
            )
        rows = [_row(one, checkpoint, digest, name, user) for one in tasks]
        OutsideResult.objects.bulk_create(rows)
        audit_record(
            action="outside_result.imported",
            actor=user,
            project=checkpoint.project,
            subject=checkpoint.pk,
            details={"tasks": len(rows), "file": name, "sha256": digest},
        )
    return rows


def _row(
    one: OutsideTask, checkpoint: Checkpoint, digest: str, name: str, user: User
) -> OutsideResult:
    return OutsideResult(
        project_id=checkpoint.project_id,
        checkpoint=checkpoint,
        program=one.program,
        task=one.task,
        metrics=storable([asdict(metric) for metric in one.metrics]),
        protocol=dict(one.protocol),
        protocol_sha256=one.sha256,
        system=dict(one.system),
        measured_at=one.measured_at[:_LONGEST_MOMENT],
        file_name=name,
        file_sha256=digest,
        imported_by=user,
        imported_name=str(user),
    )


@transaction.atomic
def outside_result_delete(*, project: Project, result_id: str, user: User) -> None:
    """It is on no page any more; promotions that named it keep what they froze."""
    row = outside_result_get(project=project, result_id=result_id)
    audit_record(
        action="outside_result.deleted",
        actor=user,
        project=project,
        subject=row.checkpoint_id,
        details={"task": row.task, "file": row.file_name, "sha256": row.file_sha256},
    )
    row.delete()
