"""The first wrong steps that people named become a dataset of steps, for a process reward model."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, Role, User
from apps.accounts.services import person_erase
from apps.common.errors import DomainError
from apps.common.registry import person_datasets
from apps.labeling import services
from apps.labeling.models import Comparison, LabelingSettings, Vote
from apps.labeling.services import vote_cast
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.services.improvements import JUDGED, judged_count
from apps.snapshots.storage import read_rows
from tests.labeling.pairs import leased
from tests.people import person_make
from tests.snapshots.test_written import folder
from tests.snapshots.test_written import frozen as frozen_of
from workers.data.snapshot import read_judged_steps

PAIRS = 12  # by hash some of them are tested on


def call(tool: str) -> dict[str, Any]:
    asked = {"type": "function", "function": {"name": tool, "arguments": {"path": "a"}}}
    return {"role": "assistant", "content": "", "tool_calls": [asked]}


def run_of(number: int, tool: str) -> list[dict[str, Any]]:
    return [
        call("ls"),
        {"role": "tool", "content": f"a {number}"},
        call(tool),
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.fixture
def judged(project: Project, ana: User) -> list[Comparison]:
    """Ana, Ben and Cy say that removing, the third step, is wrong in A. Of B Ana and Ben say that
    nothing is; of the first pair each says something else."""
    LabelingSettings.objects.update_or_create(
        project=project,
        defaults={"overlap": 3, "ask_steps": True, "acknowledge_guidelines": False},
    )
    rows = [
        {
            "prompt": f"Tidy folder {n}.",
            "response_a": run_of(n, "rm"),
            "response_b": run_of(n, "cat"),
            "group": f"g-{n}",
            "licence": "CC0-1.0",
        }
        for n in range(PAIRS)
    ]
    services.comparisons_import(project=project, rows=rows)
    found = list(Comparison.objects.filter(project=project).order_by("pk"))
    ben, cy = (person_make(name, project, Role.ANNOTATOR) for name in ("Ben", "Cy"))
    for person, of_b, of_first in ((ana, 0, 1), (ben, 0, 2), (cy, 2, 3)):
        for _ in range(PAIRS):
            lease = leased(project, person)
            first = lease.task == found[0].pk
            said = {"a": of_first, "b": of_first} if first else {"a": 3, "b": of_b}
            vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                choice="b",
                runs={"first_error": said},
            )
    return found


def frozen(project: Project, by: User) -> Snapshot:
    return frozen_of(project, by, JUDGED)


def rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        row | {"split": name}
        for name in snapshot.counts["rows"]
        for row in read_rows(folder(snapshot) / f"{name}.jsonl")
    ]


def test_each_run_whose_first_wrong_step_most_agree_on_is_a_row(
    project: Project, emil: User, judged: list[Comparison]
) -> None:
    assert judged_count(project=project) == 3 * PAIRS
    snapshot = frozen(project, emil)
    assert snapshot.kind == "stepwise"
    found = rows(snapshot)
    assert len(found) % 2 == 0
    assert {row["external_id"].split("-")[0] for row in found} <= {
        str(one.pk) for one in judged[1:]
    }
    for row in found:
        wrong = row["external_id"].endswith("-a")
        assert row["completions"][2] == ('rm({"path":"a"})' if wrong else 'cat({"path":"a"})')
        assert row["roles"] == ["assistant", "tool", "assistant", "tool", "assistant"]
        known = [True, None, False, None, None] if wrong else [True, None, True, None, True]
        assert row["labels"] == known
        assert json.loads(row["metadata"]) == {"answers": 3, "agreeing": 3 if wrong else 2}
        assert row["licence"] == "CC0-1.0"
    for name in snapshot.counts["rows"]:
        read = read_judged_steps(folder(snapshot), name)
        assert len(read) == snapshot.counts["rows"][name]
    splits: dict[str, set[str]] = {}
    for row in found:
        splits.setdefault(row["group"], set()).add(row["split"])
    assert {len(one) for one in splits.values()} == {1}
    assert not any("repeats" in reason for reason in snapshot.counts["dropped"])


def test_it_stands_on_every_vote_and_is_named_when_a_person_is_erased(
    project: Project, ana: User, emil: User, judged: list[Comparison]
) -> None:
    snapshot = frozen(project, emil)
    lineage = list(SnapshotRow.objects.filter(snapshot=snapshot))
    assert len(lineage) == len(rows(snapshot)) / 2, "one of a comparison"
    for one in lineage:
        cast = Vote.objects.filter(comparison=one.comparison_id).values_list("pk", flat=True)
        assert sorted(one.vote_ids) == sorted(cast)
    assert snapshot.counts["annotators"] == 3
    assert [one.name for one in person_datasets(ana)] == ["written"]
    before = len(rows(snapshot))
    person_erase(user=ana, by=emil, votes="discard", remarks="remove")
    again = rows(frozen(project, emil))
    assert len(again) == before / 2, "of B two who are left say different things"
    assert {json.loads(row["metadata"])["answers"] for row in again} == {2}


def test_it_is_frozen_from_the_page_and_by_the_api(
    client: Client, project: Project, emil: User, judged: list[Comparison]
) -> None:
    client.force_login(emil)
    address = f"/p/{project.slug}/datasets/new/"
    assert (
        "36 votes say which step of a run is the first wrong one"
        in client.get(address).content.decode()
    )
    sent = client.post(address, {"action": "judged", "name": "by page"})
    assert sent.status_code == 302
    answer = client.post(
        f"/api/v1/projects/{project.slug}/snapshots",
        {"name": "by api", "kind": "stepwise"},
        content_type="application/json",
    )
    assert answer.status_code == 202, answer.text
    made = Snapshot.objects.filter(project=project)
    assert {(one.name, one.kind, one.recipe["from"]) for one in made} == {
        ("by page", "stepwise", JUDGED),
        ("by api", "stepwise", JUDGED),
    }


def test_where_nobody_judged_a_step_it_says_so(
    client: Client, project: Project, emil: User
) -> None:
    client.force_login(emil)
    page = client.get(f"/p/{project.slug}/datasets/new/").content.decode()
    assert "Judged steps" not in page
    with pytest.raises(DomainError, match="most people agree") as refused:
        frozen(project, emil)
    assert (refused.value.code, refused.value.field) == ("empty_snapshot", "kind")
