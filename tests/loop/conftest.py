"""A round's datasets from the crowd whose votes are known by construction."""

import json
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison
from apps.loop.services import CircleData
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Run, RunInput
from tests.snapshots.conftest import crowd_make

JUDGED = tuple(f"debate-{n:02}" for n in range(4))
TRAINED = tuple(f"debate-{n:02}" for n in range(4, 12))


@pytest.fixture
def crowd(project: Project) -> list[Comparison]:
    return crowd_make(project)


@pytest.fixture
def prompts(project: Project) -> Snapshot:
    rows = [
        {"prompt": f"Argue about {n}.", "group": f"topic-{n}", "licence": "MIT"} for n in range(3)
    ]
    return snapshot_import(project=project, kind="prompts", name="Asked", rows=rows)


@pytest.fixture
def data(project: Project, crowd: list[Comparison], prompts: Snapshot, emil: User) -> CircleData:
    demonstrations = snapshot_import(
        project=project,
        kind="demonstrations",
        name="Shown",
        rows=[{"prompt": "Why?", "response": "Because."}],
    )
    weak = {"least_votes": 1, "least_agreeing": 1, "seed": "seed-2", "splits": {"train": 1.0}}
    preferences = snapshot_freeze(
        project=project,
        name="Pairs",
        recipe=SnapshotRecipe(**weak, heldout_groups=JUDGED, heldout_annotators=0.5),
        user=emil,
    )
    judge = snapshot_freeze(
        project=project,
        name="Pairs for the judge",
        recipe=SnapshotRecipe(
            **weak,
            heldout_groups=TRAINED,
            heldout_annotators=0.0,
            filters=RecipeFilters(without_annotators_of=(preferences.pk,)),
        ),
        user=emil,
    )
    return CircleData(demonstrations, prompts, preferences, judge)


def pair(prompt: str, a: str, b: str, checkpoint: str = "checkpoint1") -> dict:
    """A line of candidates.jsonl as the recipe `generate` writes it."""
    origin = {"role": "policy", "checkpoint": checkpoint, "sha256": "0" * 64, "run": "x"}
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "response_a": {"text": a, "origin": origin},
        "response_b": {"text": b, "origin": origin},
        "sampling": {"temperature": 1.0},
    }


def generation_make(
    project: Project,
    pairs: list[dict],
    *,
    prompts: Snapshot | None = None,
    attempt: int = 1,
    **config: Any,
) -> Run:
    """A generation that has written its pairs and is still running."""
    run = Run.objects.create(
        project=project,
        name="fresh",
        kind="generate",
        state="running",
        attempt=attempt,
        config=config,
    )
    if prompts is not None:
        RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
    generated_add(run, pairs, attempt=attempt)
    return run


def generated_add(run: Run, pairs: list[dict], *, attempt: int, seq: int = 5) -> Artifact:
    uri = f"runs/{run.pk}/attempt-{attempt}/artifacts/candidates.jsonl"
    text = "".join(json.dumps(row) + "\n" for row in pairs)
    return Artifact.objects.create(
        run=run,
        attempt=attempt,
        seq=seq,
        name="candidates.jsonl",
        purpose="candidates",
        uri=uri,
        sha256=artifact_store().write_bytes(uri, text.encode()),
        count=len(pairs),
    )


def outputs_add(run: Run, lines: list[dict]) -> None:
    """The file of answers that an evaluation leaves; each line has these and what is given."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Stance {n}: why?"}],
            "response": f"Because of {n}.",
            "score": 1.0,
            "other_response": f"In spite of {n}.",
            "other_score": 0.0,
            **line,
        }
        for n, line in enumerate(lines)
    ]
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    uri = f"runs/{run.pk}/outputs.jsonl"
    Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="outputs.jsonl",
        purpose="audit",
        uri=uri,
        sha256=artifact_store().write_bytes(uri, data),
        size_bytes=len(data),
    )
