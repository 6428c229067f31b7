"""Rewritten answers of a run as a dataset of preference pairs, which nobody compared."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from apps.accounts.models import User
from apps.common.errors import Conflict, DomainError
from apps.labeling.selectors import settings_get
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.lineage import frozen_from
from apps.snapshots.services.ai_feedback import ai_feedback_freeze
from apps.snapshots.services.drafts import alone
from apps.snapshots.storage import artifact_open
from apps.training.models import Artifact, Constitution, Run, RunInput
from measures.messages import plain
from measures.phrases import Phrases
from workers.artifacts import ArtifactError

FILE = "revisions.jsonl"
LABELLED_BY = "ai:constitution"
DEFAULT_WEIGHT = 0.5  # of a row, where a person's counts 1


def revisions_file(run: Run) -> Artifact | None:
    """The pairs that the last attempt of a finished run rewrote."""
    if run.kind != Run.Kind.GENERATE or run.state != Run.State.FINISHED:
        return None
    rows = Artifact.objects.filter(run=run, name=FILE, attempt=run.attempt)
    return rows.order_by("-seq").first()


def revisions_dataset(run: Run) -> Snapshot | None:
    """The dataset that was frozen from the run, if one was."""
    return next(iter(frozen_from(run.pk, project=run.project)), None)


def revisions_freeze(
    *,
    run: Run,
    name: str,
    user: User | None,
    weight: float = DEFAULT_WEIGHT,
    label_probability: float = 1.0,
) -> Snapshot:
    """Freeze the rewritten answers as preferred to those they rewrite.

    weight: of each row in the loss, over 0, at most 1, which a person's row weighs.
    label_probability: how sure it is that the rewritten answer is the better one, over 0.5, at most
    1. Pairs whose rewritten answer holds one of the project's blocked phrases are left out and
    counted. Raises `Conflict` for a run without such pairs and for one that has a dataset, and
    `DomainError` for a weight, a probability or a row that does not fit.
    """
    file = revisions_file(run)
    if file is None:
        raise Conflict(
            "Only a finished run whose opponent is 'revision' has pairs to freeze.",
            code="no_revisions",
        )
    with alone(f"revisions {run.pk}") as free:
        known = revisions_dataset(run)
        if known is not None or not free:
            called = f" as '{known.name}'" if known else ""
            raise Conflict(f"The pairs of this run are frozen already{called}.", code="frozen")
        model = _model(run)
        about: dict[str, Any] = {
            "run": run.pk,
            "run_name": run.name,
            "model": model,
            "constitution": run.config.get("constitution"),
        }
        rows = list(_rows(file, weight, label_probability, _names(run)))
        phrases = Phrases(settings_get(project=run.project).constraint_phrases)
        kept = [row for row in rows if not phrases.first_in(plain(row["chosen"]))]
        if left := len(rows) - len(kept):
            about["blocked_phrases"] = left
        return ai_feedback_freeze(
            project=run.project,
            name=name.strip() or f"{run.name}, rewritten"[:120],
            rows=kept,
            about={key: value for key, value in about.items() if value},
            user=user,
            labelled_by=f"{LABELLED_BY}:{model}" if model else LABELLED_BY,
        )


def _model(run: Run) -> str:
    """Id of the checkpoint that criticised and rewrote: the critic's, else the policy's."""
    rows = RunInput.objects.filter(run=run, role__in=("critic", "policy"))
    by_role = {row.role: row.checkpoint_id or "" for row in rows}
    return by_role.get("critic") or by_role.get("policy") or ""


def _names(run: Run) -> dict[str, str]:
    """{text: name} of the principles of the run's constitution."""
    number = run.config.get("constitution")
    found = (
        Constitution.objects.filter(project=run.project_id, number=number).first()
        if isinstance(number, int)
        else None
    )
    return {one["text"]: one["name"] for one in found.principles} if found else {}


def _rows(
    file: Artifact, weight: float, probability: float, names: dict[str, str]
) -> Iterator[dict[str, Any]]:
    try:
        with closing(artifact_open(file.uri, sha256=file.sha256)) as lines:
            for line in lines:
                row = json.loads(line)
                text = str(row.get("principle") or "")
                yield {
                    "prompt": row["prompt"],
                    "chosen": row["chosen"],
                    "rejected": row["rejected"],
                    "sources": row.get("sources") or ["revision", "policy"],
                    "principle": row.get("principle_name") or names.get(text) or text[:200],
                    "weight": weight,
                    "label_probability": probability,
                }
    except ArtifactError as error:
        raise Conflict(f"{FILE} cannot be read: {error}.", code="damaged") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DomainError(f"{FILE} is damaged.", code="damaged") from error
