"""Datasets by program."""

import json
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.labeling.models import Comparison
from apps.snapshots import dispatch
from apps.snapshots.assembling import gate
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.services import freezing

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


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages to workers, which nobody reads here."""
    messages: list[str] = []
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: not messages.append(pk))
    return messages


@pytest.fixture
def emils(emil: User, signed_in) -> Client:
    return signed_in(emil)


def post(client: Client, path: str, body: dict) -> tuple[int, dict]:
    answer = client.post(BASE + path, json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


def frozen(client: Client, body: dict) -> dict:
    """What the API says of a dataset once a worker has frozen it."""
    status, draft = post(client, "", body)
    assert (status, draft["state"], draft["counts"]) == (202, "draft", {})
    freezing.snapshot_run(snapshot=draft["id"])
    return client.get(f"{BASE}/{draft['id']}").json()


def test_a_dataset_is_frozen_read_and_downloaded(
    emils: Client, project: Project, crowd: list[Comparison]
) -> None:
    status, preview = post(emils, "/preview", {"recipe": RECIPE})
    assert (status, preview["counts"]["comparisons"]) == (200, 72)
    made = frozen(emils, {"name": "May", "recipe": RECIPE})
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


def test_a_freeze_is_begun_in_the_request_and_made_by_a_worker(
    emils: Client, project: Project, crowd: list[Comparison], sent: list[str], monkeypatch
) -> None:
    monkeypatch.setattr(freezing, "write_folder", None)
    monkeypatch.setattr(freezing, "preferences_write", None)  # nothing is written in a request
    status, draft = post(emils, "", {"name": "May", "recipe": RECIPE})
    assert (status, draft["state"], draft["frozen_at"]) == (202, "draft", None)
    assert sent == [draft["id"]]
    row = Snapshot.objects.get(pk=draft["id"])
    assert (row.name, row.created_by.username, row.started_at) == ("May", "emil", None)


def test_of_a_large_project_no_text_is_compared_in_the_request(
    emils: Client, project: Project, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr(freezing, "COMPARED_AT_ONCE", len(crowd))
    nothing = {"name": "May", "recipe": RECIPE | {"least_votes": 99}}
    assert post(emils, "", nothing)[0] == 400
    monkeypatch.setattr(freezing, "COMPARED_AT_ONCE", len(crowd) - 1)
    monkeypatch.setattr(gate, "near_families", None)
    monkeypatch.setattr(freezing, "material_of", None)
    assert post(emils, "", {"name": "May", "recipe": RECIPE})[0] == 202
    monkeypatch.setattr(freezing, "is_looked_at_once", None)
    status, error = post(emils, "", {"name": "", "recipe": RECIPE})
    assert (status, error["field"]) == (400, "name")
    monkeypatch.setattr(freezing, "is_looked_at_once", lambda _: False)
    other = {"filters": {"without_annotators_of": ["nothing"]}}
    status, error = post(emils, "", {"name": "x", "recipe": other})
    assert (status, error["field"]) == (404, "snapshot")


def test_a_broker_that_is_away_loses_no_freeze(
    emils: Client, project: Project, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: False)
    status, draft = post(emils, "", {"name": "May", "recipe": RECIPE})
    assert (status, draft["state"]) == (202, "draft")
    offered: list[str] = []
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: not offered.append(pk))
    Snapshot.objects.update(queued_at=Snapshot.objects.get().created_at - freezing.RESEND_AFTER * 2)
    freezing.snapshots_sweep()
    assert offered == [draft["id"]]


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


def test_a_freeze_that_finds_a_leak_fails_with_its_words(
    emils: Client, project: Project, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr("apps.snapshots.assembling.gate.fold_of", lambda key, share, salt: True)
    made = frozen(emils, {"name": "May", "recipe": RECIPE})
    assert (made["state"], made["files"]) == ("failed", [])
    assert "held-out annotator" in made["error"]


def test_a_votes_lineage_names_its_datasets(
    emils: Client, project: Project, crowd: list[Comparison]
) -> None:
    made = frozen(emils, {"name": "May", "recipe": RECIPE})
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
    assert status == 202


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
