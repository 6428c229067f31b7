"""The hostile neighbour asks for what there is, and both sides of the benchmark are counted."""

import argparse
import asyncio
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from benchmarks import neighbour
from benchmarks.load import projects
from benchmarks.neighbour_world import hostile
from benchmarks.neighbour_world.hostile import ASKED, Asked, Attack
from tests.database import as_superuser
from tests.labeling.pairs import pairs_make, vote

GOOD = {200, 201, 202, 302}


def asked_by(client: Client, asked: Asked, project: Project) -> Any:
    url = hostile.address(asked, Attack("", project.slug, [], 1, 1.0))
    if asked.body == "json":
        return client.post(url, hostile.large_body(1), content_type="application/json")
    if asked.body == "file":
        rows = SimpleUploadedFile("rows.jsonl", hostile.file_of_rows(1, rows=3))
        return client.post(url, {"file": rows})
    return client.post(url, {"page": "results"}) if asked.body else client.get(url)


@pytest.mark.django_db
@pytest.mark.parametrize("asked", ASKED, ids=lambda one: f"{one.method} {one.path}")
def test_what_the_neighbour_asks_for_is_there(
    asked: Asked, project: Project, ada: User, ana: User, signed_in: Any
) -> None:
    pairs_make(project, 4)
    vote(project, ana)
    client = signed_in(ada)
    if asked.api:
        _, token = token_create(user=ada, name="t", scopes=["read", "write", "admin"], days=1)
        client = Client(headers={"Authorization": f"Bearer {token}"})
    answer = asked_by(client, asked, project)
    if asked.body == "json":  # rows that lack their answers
        assert (answer.status_code, answer.json()["row"]) == (400, 1)
    else:
        assert answer.status_code in GOOD
    if answer.streaming:
        assert list(answer.streaming_content), "read, and so closed"


def test_both_sides_play_and_every_vote_is_found(
    live_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(neighbour, "WARM_UP_S", 0.5)
    monkeypatch.setattr(neighbour, "PAUSE_S", (0.01, 0.05))
    monkeypatch.setattr(neighbour, "PEOPLE", 1)
    monkeypatch.setattr(neighbour, "AT_ONCE", 2)
    quiet = projects.project_make("quiet", pairs=200, annotators=2)
    with as_superuser():
        members = neighbour.neighbour_make(20)
    names = [user.username for user in quiet.annotators]
    alone, beside, came, votes = asyncio.run(
        neighbour.turns(live_server.url, names, projects.PASSWORD, members, 1.0, 1)
    )
    checked = projects.checked(quiet.project, votes)
    assert alone
    assert beside
    assert checked["votes"] == len(votes) >= len(alone) + len(beside)
    assert sum(sum(counts.values()) for counts in came[0]["statuses"].values()) > 0
    neighbour.report(alone, beside, came, checked, argparse.Namespace(annotators=2, pairs=20))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["p95_ratio"] == pytest.approx(
        said["beside_ms"]["p95 ms"] / said["alone_ms"]["p95 ms"], abs=0.01
    )
