"""Datasets by program."""

import json
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.labeling.models import Comparison
from apps.snapshots.models import Snapshot, SnapshotRow

pytestmark = pytest.mark.django_db

BASE = "/api/v1/projects/arguments/snapshots"
RECIPE = {
    "least_votes": 2,
    "least_agreeing": 2,
    "heldout_groups": ["debate-03"],
    "heldout_annotators": 0.2,
    "splits": {"train": 0.6, "dev": 0.2, "public_test": 0.2},
    "seed": "seed-2",
}


@pytest.fixture
def emils(emil: User, signed_in) -> Client:
    return signed_in(emil)


def post(client: Client, path: str, body: dict) -> tuple[int, dict]:
    answer = client.post(BASE + path, json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


def test_a_dataset_is_frozen_read_and_downloaded(
    emils: Client, project: Project, crowd: list[Comparison]
) -> None:
    status, preview = post(emils, "/preview", {"recipe": RECIPE})
    assert (status, preview["counts"]["comparisons"]) == (200, 72)
    status, made = post(emils, "", {"name": "May", "recipe": RECIPE})
    assert status == 201
    assert made["state"] == "frozen"
    assert made["counts"]["kept"] == preview["counts"]["kept"]
    assert made["recipe"]["least_share"] == 0.6  # not named, so the project's own

    assert [row["id"] for row in emils.get(BASE).json()] == [made["id"]]
    shown = emils.get(f"{BASE}/{made['id']}").json()
    assert {"train.jsonl", "card.json"} <= {file["name"] for file in shown["files"]}
    sent = emils.get(f"{BASE}/{made['id']}/export?split=train&format=jsonl")
    assert len(b"".join(sent.streaming_content).splitlines()) == made["counts"]["rows"]["train"]
    logged = AuditEvent.objects.get(action="file.downloaded")
    assert (logged.project, logged.actor.username) == (project, "emil")
    status, verified = post(emils, f"/{made['id']}/verify", {})
    assert (status, verified) == (200, {"ok": True, "problem": ""})


def test_prompts_are_brought_as_rows(emils: Client, project: Project) -> None:
    rows = [{"prompt": "Why?", "source": "us", "licence": "MIT"}]
    status, made = post(emils, "", {"name": "Asked", "kind": "prompts", "rows": rows})
    assert (status, made["kind"], made["counts"]["rows"]) == (201, "prompts", {"train": 1})


@pytest.mark.parametrize(
    ("body", "status", "code", "field", "row"),
    [
        ({"name": "x", "recipe": {"least_share": 3}}, 400, "bad_recipe", "least_share", None),
        ({"name": "x", "recipe": {"colour": 1}}, 400, "bad_recipe", "colour", None),
        ({"name": " ", "recipe": {}}, 400, "invalid", "name", None),
        ({"name": "x", "rows": [{}]}, 400, "invalid", "rows", None),
        ({"name": "x", "kind": "prompts"}, 400, "empty_snapshot", "rows", None),
        ({"name": "x", "kind": "prompts", "rows": [{}]}, 400, "bad_row", "prompt", 1),
        (
            {"name": "x", "recipe": {"filters": {"without_annotators_of": ["nothing"]}}},
            404,
            "not_found",
            "snapshot",
            None,
        ),
        ({"name": "x", "kind": "weights"}, 422, "invalid_input", "kind", None),
    ],
)
def test_a_refusal_names_what_is_wrong(
    emils: Client,
    project: Project,
    crowd: list[Comparison],
    body: dict,
    status: int,
    code: str,
    field: str,
    row: int | None,
) -> None:
    answered, error = post(emils, "", body)
    assert (answered, error["code"], error["field"], error["row"]) == (status, code, field, row)
    assert error["message"]
    assert not Snapshot.objects.filter(state="frozen").exists()


def test_a_leak_is_a_conflict_with_its_details(
    emils: Client, project: Project, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr("apps.snapshots.assembling.gate.fold_of", lambda key, share, salt: True)
    status, error = post(emils, "", {"name": "May", "recipe": RECIPE})
    assert (status, error["code"]) == (409, "leak")
    assert "held-out annotator" in error["details"][0]


def test_a_votes_lineage_names_its_datasets(
    emils: Client, project: Project, crowd: list[Comparison]
) -> None:
    _, made = post(emils, "", {"name": "May", "recipe": RECIPE})
    row = SnapshotRow.objects.filter(snapshot=made["id"], split="train").first()
    answer = emils.get(f"/api/v1/projects/arguments/votes/{row.vote_ids[0]}/lineage").json()
    assert answer == {
        "vote": row.vote_ids[0],
        "rows": [{"snapshot": made["id"], "split": "train", "dropped_because": "", "winner": "b"}],
        "runs": [],
        "checkpoints": [],
    }


def test_an_anonymised_import_is_refused_with_its_reason_by_program_too(
    emils: Client, project: Project, crowd: list[Comparison]
) -> None:
    User.objects.filter(username="crowd-00").update(username=f"imported.{project.pk}.anonymous")
    for path, body in (("/preview", {"recipe": RECIPE}), ("", {"name": "May", "recipe": RECIPE})):
        status, error = post(emils, path, body)
        assert (status, error["code"], error["field"]) == (
            400,
            "anonymous_votes",
            "heldout_annotators",
        )
    status, _ = post(emils, "", {"name": "May", "recipe": RECIPE | {"heldout_annotators": 0}})
    assert status == 201


def test_a_misspelt_field_freezes_nothing(
    project: Project, emil: User, signed_in: Callable[[User], Client]
) -> None:
    answer = signed_in(emil).post(
        "/api/v1/projects/arguments/snapshots",
        {"name": "pairs", "reciep": {"least_votes": 5}},
        "application/json",
    )
    assert answer.status_code == 422
    assert "reciep" in answer.content.decode()
    assert not Snapshot.objects.exists()
