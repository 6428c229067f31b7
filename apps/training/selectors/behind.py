"""What the rules about a reward model that is behind, and about disks, read of a project."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from django.db import DatabaseError, connection, transaction
from django.db.models import Count, Exists, OuterRef, Q
from django.urls import reverse

from apps.accounts.models import Project
from apps.common.registry import ProjectFigure
from apps.labeling.models import Decision
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, Run, RunInput

log = logging.getLogger(__name__)
DECIDED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


def behind_figures(project: Project) -> list[ProjectFigure]:
    """At most five statements."""
    return [_stale_figure(project), disk_figure(project, disks())]


# --- the reward model ---


def reward_model_in_use(project: Project) -> Checkpoint | None:
    """The newest approved one, else that of the newest finished run, final or best first."""
    rows = Checkpoint.objects.filter(
        project=project, run__kind=Run.Kind.REWARD, run__state=Run.State.FINISHED
    ).select_related("run")
    usable = rows.exclude(status__in=[Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED])
    approved = usable.filter(status=Checkpoint.Status.APPROVED).order_by("-created_at").first()
    return approved or usable.order_by("-run__ended_at", "-step").first()


def _stale_figure(project: Project) -> ProjectFigure:
    page = reverse("training:runs", args=[project.slug])
    model = reward_model_in_use(project)
    if model is None:
        return ProjectFigure(
            rule="reward_model_stale", page=page, missing="no reward model has finished"
        )
    page = reverse("training:model", args=[project.slug, model.pk])
    learned = _learned_from(model)
    if learned is None:
        missing = "the reward model learned from no dataset of this project's decisions"
        return ProjectFigure(rule="reward_model_stale", page=page, missing=missing)
    seen = SnapshotRow.objects.filter(snapshot=learned, comparison=OuterRef("comparison"))
    fresh = Decision.objects.filter(~Exists(seen), project=project, outcome__in=DECIDED).count()
    rows = SnapshotRow.objects.filter(snapshot=learned).aggregate(
        n=Count("comparison", distinct=True, filter=~Q(split=""))
    )["n"]
    return ProjectFigure(
        rule="reward_model_stale",
        page=page,
        metrics={
            "people/pairs_since_reward_model": float(fresh),
            "people/pairs_of_reward_model": float(rows),
        },
        value=f"{fresh:,} decided pairs since",
        expected=f"{rows:,} that it learned from",
        detail=f"{model.run.name}, step {model.step:,}, learned from {learned.name}, frozen on "
        f"{learned.frozen_at:%Y-%m-%d}.",
    )


def _learned_from(model: Checkpoint) -> Snapshot | None:
    """The dataset of the run, where its rows were decided here."""
    row = (
        RunInput.objects.filter(run=model.run, role="data", snapshot__isnull=False)
        .select_related("snapshot")
        .first()
    )
    found = row.snapshot if row is not None else None
    return found if found is not None and found.is_decided and found.frozen_at else None


# --- disks ---


def disks() -> dict[str, float]:
    """{what lies there: the share of the disk that is used}, as far as this process can see."""
    places = {"artifact store": artifact_store().disk_place(), "database": _database_folder()}
    return {
        what: usage.used / usage.total
        for what, place in places.items()
        if place is not None and (usage := shutil.disk_usage(place)).total
    }


def _database_folder() -> Path | None:
    """Of a server on this machine (its socket is a folder): the socket's own where that is the data
    folder, as of the embedded one, else what the server says to a role that may ask."""
    socket = str(connection.settings_dict.get("HOST") or "")
    if not socket.startswith("/"):
        return None
    try:
        if (Path(socket) / "PG_VERSION").is_file():
            return Path(socket)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("show data_directory")
            folder = Path(cursor.fetchone()[0])
        return folder if folder.is_dir() else None
    except (DatabaseError, OSError):
        log.debug("the database's folder may not be read", exc_info=True)
        return None


def disk_figure(project: Project, used: Mapping[str, float]) -> ProjectFigure:
    """Of the fullest disk."""
    page = reverse("training:space", args=[project.slug])
    if not used:
        missing = "artifacts and database lie where this process cannot see their disks"
        return ProjectFigure(rule="disk_filling", page=page, missing=missing)
    parts = [f"{what} {100 * share:.0f} %" for what, share in used.items()]
    return ProjectFigure(
        rule="disk_filling",
        page=page,
        metrics={"people/disk_used": max(used.values())},
        value=f"{100 * max(used.values()):.0f} % used",
        detail=f"Used of the disks: {', '.join(parts)}.",
    )
