"""A reward model with a finished assessment that kept a policy's answers, without a worker."""

import hashlib
import json
from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Slot, Task
from apps.labeling.services import slot_lease_next, vote_cast
from apps.labeling.services.results import Lease
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from tests.labeling.pairs import annotators_make
from tests.web.world import run_make


def snapshot_make(project: Project, **fields: Any) -> Snapshot:
    values: dict[str, Any] = {
        "name": "pairs",
        "kind": Snapshot.Kind.PREFERENCES,
        "state": Snapshot.State.FROZEN,
        "uri": "snapshots/none",
        "sha256": "0" * 64,
        "counts": {"rows": {"train": 8, "dev": 2}},
        "frozen_at": timezone.now(),
    }
    return Snapshot.objects.create(project=project, **values | fields)


def checkpoint_make(
    project: Project, *, kind: str = "reward", data: Snapshot | None = None, **fields: Any
) -> Checkpoint:
    """A finished run's final model; `data` is what it was trained on."""
    run = run_make(project, kind=kind, state="finished", name=f"a {kind} run", **fields)
    if data is not None:
        RunInput.objects.create(run=run, role="data", snapshot=data)
    return Checkpoint.objects.create(
        project=project,
        run=run,
        attempt=1,
        step=5,
        uri="runs/x/attempt-1/checkpoints/step-5",
        sha256="0" * 64,
        tags=["final", "best"],
    )


def output(number: int, score: float, **fields: Any) -> dict[str, Any]:
    """A line of the file; the other answer scores one less unless told otherwise."""
    return {
        "prompt": [{"role": "user", "content": f"Question {number}: how long is a day?"}],
        "response": f"Twenty-four hours, says the policy in answer {number}.",
        "score": score,
        "disagreement": None,
        "other_response": f"It depends on the planet, answer {number}.",
        "other_score": score - 1,
    } | fields


def assessment_make(
    checkpoint: Checkpoint, lines: list[Any], *, state: str = "finished", **fields: Any
) -> Run:
    """A run of kind assess that left these outputs; texts among `lines` stand as they are."""
    run = run_make(checkpoint.project, kind="assess", state=state, name="assessment", **fields)
    RunInput.objects.create(run=run, role="reward", checkpoint=checkpoint)
    RunInput.objects.create(
        run=run, role="policy", checkpoint=checkpoint_make(checkpoint.project, kind="ppo")
    )
    RunInput.objects.create(
        run=run, role="sft", checkpoint=checkpoint_make(checkpoint.project, kind="sft")
    )
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    data = "".join(f"{text}\n" for text in texts).encode()
    uri = f"runs/{run.pk}/outputs.jsonl"
    artifact_store().write_bytes(uri, data)
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="outputs.jsonl",
        purpose="audit",
        uri=uri,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        count=len(lines),
    )
    return run


def crowd_of(project: Project, n: int = 3) -> list[User]:
    return annotators_make(project, n)


def grade_all(project: Project, people: list[User], grade_of: Any, *, at_most: int = 10**6) -> int:
    """Everybody grades what the queue hands out; `grade_of(text)` is the grade. How many grades."""
    given = 0
    for person in people:
        while given < at_most * (people.index(person) + 1) // len(people):
            lease = slot_lease_next(project=project, annotator=person)
            if not isinstance(lease, Lease):
                break
            text = lease.responses[0][-1]["content"]
            a_while_ago = timezone.now() - timedelta(seconds=30)  # nobody reads in no time
            Slot.objects.filter(pk=lease.slot).update(leased_at=a_while_ago)
            vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                values=[grade_of(text)],
                active_ms=9_000,
            )
            given += 1
    return given


def shuffles(project: Project) -> list[str]:
    """Prompts of the queue in the order in which they are handed out."""
    slots = Slot.objects.filter(project=project, position=1).order_by("-priority", "shuffle")
    tasks = Task.objects.in_bulk(list(slots.values_list("task_id", flat=True)))
    return [tasks[slot.task_id].prompt.messages[0]["content"] for slot in slots]
