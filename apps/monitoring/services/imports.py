"""Runs that were trained elsewhere: their metrics file becomes a run with curves."""

import contextlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import PurePath
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.common.sandbox import sandboxed, upload_limits
from apps.common.scratch import scratch_folder
from apps.monitoring.run_files import read_from
from apps.monitoring.selectors.diagnosis import TRAINED
from apps.training.models import Run, RunAttempt
from apps.training.services import metrics_store
from workers.diagnosis.names import Named, ours
from workers.diagnosis.reading import Read

_LONGEST_NAME = 120
_CURVES = "apps.monitoring.run_files:curves"
_TIMES_AS_LONG = 6  # as the first look at other files: this one is read to its end


def run_import(
    *,
    project: Project,
    user: User,
    file_name: str,
    data: bytes,
    trained_as: str,
    name: str = "",
) -> Run:
    """A finished run of the kind `imported` with the file's curves under our names. All of it is
    stored, or nothing.

    Raises `DomainError`, whose details are the rows that are wrong, and `Conflict` for a file that
    the project has already, read as the same kind.
    """
    if trained_as not in TRAINED:
        kinds = ", ".join(sorted(TRAINED))
        raise DomainError(
            f"Say what was trained: one of {kinds}.", code="unknown_kind", field="trained_as"
        )
    name = storable(name.strip() or PurePath(file_name).stem)[:_LONGEST_NAME]
    found = _read(file_name, data)
    digest = sha256(data).hexdigest()
    key = f"import:{trained_as}:{digest[:40]}"
    named = ours(found.series, trained_as)
    config = storable({**found.config, "file": PurePath(file_name).name, "trained_as": trained_as})
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)  # two uploads at once are one
        known = Run.objects.filter(project=project, launch_key=key).first()
        if known is not None:
            raise Conflict(
                f"This file is here already, as {known.name}.",
                code="already_imported",
                field="file",
                details={"run": known.pk},
            )
        run = _run(project, user, name, config, key, found, named)
        RunAttempt.objects.create(
            run=run,
            number=1,
            outcome="finished",
            opened_at=run.started_at,
            ended_at=run.ended_at,
            environment=storable(
                {"file": file_name, "bytes": len(data), "sha256": digest, "format": found.format}
            ),
        )
        metrics_store(run=run, attempt=1, series=_storable_names(named.series))
        audit_record(
            action="run.imported",
            actor=user,
            project=project,
            subject=run.pk,
            details={"file": storable(file_name), "sha256": digest, "trained_as": trained_as},
        )
    return run


def _read(file_name: str, data: bytes) -> Read:
    """The file's curves, read by a child process; raises DomainError."""
    limits = upload_limits(_TIMES_AS_LONG * settings.UPLOAD_PARSE_SECONDS)
    with scratch_folder("metrics") as folder:
        path = folder / "upload"
        path.write_bytes(data)
        parsing = sandboxed(_CURVES, limits, path=str(path), name=PurePath(file_name).name)
        with contextlib.closing(parsing) as values:
            return read_from(values)


def _run(
    project: Project,
    user: User,
    name: str,
    config: dict[str, Any],
    key: str,
    found: Read,
    named: Named,
) -> Run:
    now = timezone.now()
    last = max(points[-1][0] for points in named.series.values())
    summary: dict[str, Any] = {
        "format": found.format,
        "metrics": len(named.series),
        "points": found.points,
    }
    if found.notes:
        summary["notes"] = " ".join(found.notes)
    renamed = {new: old for new, old in named.taken.items() if new != old}
    if renamed:
        summary["renamed"] = renamed
    return Run.objects.create(
        project=project,
        name=name,
        kind=Run.Kind.IMPORTED,
        state=Run.State.FINISHED,
        config=config,
        attempt=1,
        step=last,
        total_steps=last,
        summary=storable(summary),
        created_by=user,
        launch_key=key,
        started_at=now,
        ended_at=now,
    )


def _storable_names(series: Mapping[str, Any]) -> dict[str, Any]:
    return {storable(name): points for name, points in series.items()}
