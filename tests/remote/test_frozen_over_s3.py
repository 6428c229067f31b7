"""A dataset that the web side freezes onto S3, a reward model that a machine apart makes of it, and
all of that in the browser."""

import hashlib
import json
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.training import selectors, services
from apps.training.models import Checkpoint, Run, Sample
from tests.remote.conftest import Machine, ended
from tests.snapshots.conftest import crowd_make
from tests.workers.s3 import Bucket

pytestmark = [pytest.mark.stack, pytest.mark.spread]

FEW = {"learning_rate": 1e-3, "batch_size": 4, "max_steps": 4, "max_length": 96, "log_every": 1}
TINY = FEW | {
    "toy": True,
    "base_vocabulary": 300,
    "base_width": 16,
    "base_layers": 1,
    "base_heads": 2,
    "base_context": 96,
    "held_out_share": 0.2,
    "sample_max_new_tokens": 8,
    "imitation_prompts": 2,
}
TABS = ("overview", "charts", "samples", "alerts", "checks", "config", "logs", "lineage")


def address(run: Run, rest: str = "") -> str:
    return f"/p/{run.project.slug}/runs/{run.pk}/{rest}"


def shown(project: Project, name: str, *, what: str) -> Snapshot:
    rows = [
        {"prompt": f"What about {what} {n}?", "response": f"Of {what} {n} I say: it is so."}
        for n in range(24)
    ]
    return snapshot_import(project=project, kind="demonstrations", name=name, rows=rows)


def test_a_dataset_frozen_onto_s3_becomes_a_reward_model_apart_and_the_browser_shows_it(
    web: None,
    machine: Machine,
    bucket: Bucket,
    project: Project,
    emil: User,
    signed_in: Callable[[User], Client],
) -> None:
    crowd_make(project)
    pairs = snapshot_freeze(project=project, name="Pairs", recipe=SnapshotRecipe(), user=emil)
    demonstrations = shown(project, "Shown", what="tea")
    for snapshot in (pairs, demonstrations):
        manifest = bucket.read(f"{snapshot.uri}/manifest.json")
        assert hashlib.sha256(manifest).hexdigest() == snapshot.sha256
        for name, digest in json.loads(manifest).items():
            content = bucket.read(f"{snapshot.uri}/{name}")
            assert hashlib.sha256(content).hexdigest() == digest, name

    def launch(kind: str, config: dict, **inputs: object) -> Run:
        return services.run_launch(
            project=project, kind=kind, name=kind, config=config, inputs=inputs, user=emil
        )

    sft = launch("sft", TINY, data=demonstrations)
    reward = launch("reward", FEW, data=pairs, sft=sft)
    changed = shown(project, "Changed", what="rain")
    content = bucket.read(f"{changed.uri}/train.jsonl")
    bucket.write(f"{changed.uri}/train.jsonl", content.replace(b"it is so", b"it is no"))
    refused = launch("sft", TINY, data=changed)

    client = signed_in(emil)
    for run in (ended(sft, machine), ended(reward, machine)):
        for tab in TABS:
            answer = client.get(address(run), {"tab": tab})
            assert answer.status_code == 200, (run.kind, tab)
        drawn = client.get(address(run, "metrics.json"), {"names": "loss"}).json()
        assert "loss" in json.dumps(drawn)
        checkpoint = selectors.checkpoint_for_use(run)
        manifest = bucket.read(f"{checkpoint.uri}/manifest.json")
        assert hashlib.sha256(manifest).hexdigest() == checkpoint.sha256
        page = client.get(f"/p/arguments/models/{checkpoint.pk}/")
        assert page.status_code == 200
        assert checkpoint.sha256[:12] in page.content.decode()
    samples = client.get(address(sft), {"tab": "samples"}).content.decode()
    assert Sample.objects.filter(run=sft).exists()
    assert "What about tea" in samples
    assert "Accuracy on decided pairs" in client.get(address(reward)).content.decode()
    for run in (sft, reward):
        for artifact in run.artifacts.all():
            given = client.get(address(run, f"files/{artifact.pk}/"))
            told = b"".join(given.streaming_content)
            assert hashlib.sha256(told).hexdigest() == artifact.sha256, artifact.name
    dataset = f"/p/arguments/datasets/{pairs.pk}/"
    assert client.get(dataset).status_code == 200
    assert "debate 0" in client.get(f"{dataset}rows/").content.decode()

    # What was changed behind our back is refused on both sides, by name.
    failed = ended(refused, machine, state="failed")
    assert (failed.failure_kind, failed.fault) == ("damaged_input", "data")
    text = client.get(address(failed)).content.decode()
    assert "train.jsonl" in text
    assert "Verify the dataset or checkpoint" in text
    assert not Checkpoint.objects.filter(run=failed).exists()
    told = client.post(f"/p/arguments/datasets/{changed.pk}/verify/", follow=True).content.decode()
    assert "train.jsonl" in told
    for form in ("jsonl", "csv", "zip"):
        given = client.get(
            f"/p/arguments/datasets/{changed.pk}/export/file/", {"split": "train", "format": form}
        )
        assert given.status_code == 409, form
        assert "not what was frozen" in given.content.decode(), form
    left = sft.artifacts.first()
    bucket.write(left.uri, b"something else")
    given = client.get(address(sft, f"files/{left.pk}/"))
    assert given.status_code == 409
    assert "not what the run left" in given.content.decode()
