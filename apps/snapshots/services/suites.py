"""The regression suite that Concord ships, as a dataset of prompts."""

import json

from django.conf import settings
from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.snapshots.models import Snapshot
from apps.snapshots.services.importing import snapshot_import

NAME = "Regression suite"


def suite_add(*, project: Project, user: User) -> tuple[Snapshot, bool]:
    """(dataset, whether it is new): prompts with checks, all held out. The suite of this version of
    Concord is added once; a later version's beside it."""
    text = (settings.BASE_DIR / "data" / "suite.jsonl").read_text(encoding="utf-8")
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        known = Snapshot.objects.filter(
            project=project, name=NAME, kind=Snapshot.Kind.PROMPTS, state=Snapshot.State.FROZEN
        )
        rows = [json.loads(line) for line in text.splitlines()]
        same = next((one for one in known if one.counts.get("checks") == len(rows)), None)
        if same is not None:
            return same, False
        made = snapshot_import(
            project=project, kind=Snapshot.Kind.PROMPTS, name=NAME, rows=rows, user=user
        )
        audit_record(
            action="snapshot.suite_added",
            actor=user,
            project=project,
            subject=made.pk,
            details={"checks": len(rows)},
        )
    return made, True
