"""the bias report as Emil the engineer sees it: before freezing, and of what is frozen."""

import json
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Vote
from apps.snapshots.models import Snapshot
from apps.snapshots.services import freezing
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.reporting import report_read
from apps.snapshots.storage import artifact_store
from tests.snapshots.conftest import crowd_make, revote
from tests.snapshots.test_freezing import freeze

pytestmark = pytest.mark.django_db

SignedIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


def at(name: str, project: Project, *args: str) -> str:
    return reverse(f"snapshots:{name}", args=[project.slug, *args])


@pytest.fixture
def form(project: Project, emil: User, signed_in: SignedIn) -> dict[str, object]:
    """What the freeze form sends as it is first shown."""
    shown = signed_in(emil).get(at("create", project)).context["form"]
    sent = {name: shown[name].value() for name in shown.fields}
    kept = {name: value for name, value in sent.items() if value not in (None, "", [], False)}
    return kept | {"least_votes": 2, "least_agreeing": 2}


def test_before_freezing_the_length_skew_of_the_crowd_is_said(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], form: dict
) -> None:
    client = signed_in(emil)
    page = client.post(at("report_preview", project), form | {"part": "quick"}, headers=HTMX)
    said = page.content.decode()
    assert "chosen in 100.0 %" in said
    assert "Bad" in said
    assert "Label leakage" not in said
    assert '"part": "models"' in said  # what is asked for next
    rest = client.post(at("report_preview", project), form | {"part": "models"}, headers=HTMX)
    assert "Label leakage" in rest.content.decode()
    assert "hx-post" not in rest.content.decode()
    assert Snapshot.objects.count() == 0


def test_without_javascript_the_whole_report_is_a_page_of_its_own(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], form: dict
) -> None:
    page = signed_in(emil).post(at("report_preview", project), form)
    said = page.content.decode()
    assert "<html" in said
    assert "Label leakage" in said
    assert "The longer answer" in said


def test_the_numbers_can_be_had_before_freezing(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], form: dict
) -> None:
    client = signed_in(emil)
    sheet = client.post(at("report_preview", project) + "?format=csv", form)
    lines = b"".join(sheet.streaming_content).decode().splitlines()
    assert sheet.headers["Content-Type"].startswith("text/csv")
    assert any(line.startswith('"Label leakage"') for line in lines)


def test_a_recipe_that_is_none_gives_no_report_and_says_why(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], form: dict
) -> None:
    client = signed_in(emil)
    page = client.post(at("report_preview", project), form | {"least_votes": 0})
    assert page.status_code == 422
    assert "No report." in page.content.decode()


def test_a_vote_that_changes_the_winner_changes_the_preview(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], form: dict
) -> None:
    client = signed_in(emil)
    ask = form | {"part": "quick"}
    before = client.post(at("report_preview", project), ask, headers=HTMX).content.decode()
    for comparison in crowd[:12]:
        revote(comparison, ["a"] * 5)
    after = client.post(at("report_preview", project), ask, headers=HTMX).content.decode()
    assert "chosen in 100.0 %" in before
    assert "chosen in 100.0 %" not in after


def test_a_frozen_dataset_has_its_report_and_its_numbers(
    project: Project, emil: User, rita: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    snapshot = freeze(project, emil)
    client = signed_in(rita)
    page = client.get(at("report", project, snapshot.pk)).content.decode()
    assert "chosen in 100.0 %" in page
    part = client.get(at("report", project, snapshot.pk), headers=HTMX).content.decode()
    assert part.lstrip().startswith("<section")
    sheet = client.get(at("report_csv", project, snapshot.pk))
    lines = b"".join(sheet.streaming_content).decode().splitlines()
    assert lines[0] == '"check","verdict","figure","row","value","low","high","n"'
    assert any(line.startswith('"Length","Bad",') for line in lines)


def test_a_frozen_report_does_not_follow_later_votes(
    project: Project, emil: User, crowd: list[Comparison]
) -> None:
    snapshot = freeze(project, emil)
    before = json.dumps(report_read(snapshot=snapshot))
    for comparison in crowd[:9]:
        revote(comparison, ["a"] * 5)
    assert json.dumps(report_read(snapshot=snapshot)) == before


def test_the_report_is_stored_with_its_hash_and_a_changed_one_is_refused(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    snapshot = freeze(project, emil)
    assert snapshot.counts["report"]["levels"]["stop"] >= 1
    assert freezing.snapshot_verify(snapshot=snapshot).ok
    path = f"{snapshot.uri}/report.json"
    artifact_store().write_bytes(path, artifact_store().read_bytes(path) + b" ")
    page = signed_in(emil).get(at("report", project, snapshot.pk))
    assert page.status_code == 409


def test_of_a_large_file_a_random_part_is_looked_at_and_that_is_said(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr("apps.snapshots.services.reporting.MOST_PAIRS", 10)
    snapshot = freeze(project, emil)
    made = report_read(snapshot=snapshot)
    assert made["n"] == snapshot.counts["rows"]["train"] > 10
    assert made["looked_at"] == 10
    page = signed_in(emil).get(at("report", project, snapshot.pk)).content.decode()
    assert "A random 10 of" in page


def test_a_report_that_fails_does_not_stop_a_freeze(
    project: Project, emil: User, crowd: list[Comparison], monkeypatch, caplog
) -> None:
    def broken(**_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("apps.snapshots.services.reporting.report_of", broken)
    snapshot = freeze(project, emil)
    assert snapshot.state == "frozen"
    assert "report" not in snapshot.counts
    assert "no bias report" in caplog.text
    monkeypatch.undo()
    assert report_read(snapshot=snapshot)["checks"]  # made from its rows when asked for


def test_reasons_of_voters_reach_the_report(
    project: Project, emil: User, crowd: list[Comparison]
) -> None:
    for vote in Vote.objects.filter(project=project):
        Vote.objects.filter(pk=vote.pk).update(is_current=False)
        vote.supersedes_id, vote.pk = vote.pk, None
        vote.revision, vote.reasons = 2, ["Clear"]
        vote.idempotency_key += "-r"
        vote.save(force_insert=True)
    made = report_read(snapshot=freeze(project, emil))
    check = next(c for c in made["checks"] if c["key"] == "reasons")
    assert "100.0 %" in check["verdict"]  # nobody named correctness


def test_prompts_are_set_beside_the_newest_demonstrations(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    asked = [f"question {k} about the thing with the number {k * k}" for k in range(20)]
    snapshot_import(
        project=project,
        kind="demonstrations",
        name="May demonstrations",
        rows=[{"prompt": text, "response": "so it is"} for text in asked[:8]],
        user=emil,
    )
    prompts = snapshot_import(
        project=project,
        kind="prompts",
        name="May prompts",
        rows=[{"prompt": text} for text in asked],
        user=emil,
    )
    page = signed_in(emil).get(at("report", project, prompts.pk)).content.decode()
    assert "8 of 20 distinct prompts (40.0 %)" in page
    assert "May demonstrations" in page


def test_demonstrations_and_drafts_have_no_report(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    made = snapshot_import(
        project=project,
        kind="demonstrations",
        name="d",
        rows=[{"prompt": "p", "response": "r"}],
        user=emil,
    )
    draft = Snapshot.objects.create(project=project, name="x", kind="preferences")
    for snapshot in (made, draft):
        assert signed_in(emil).get(at("report", project, snapshot.pk)).status_code == 404


def test_a_dataset_of_another_project_has_no_report_here(
    project: Project, emil: User, olga: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    other = Project.objects.get(slug="elsewhere")
    crowd_make(other)
    theirs = freeze(other, olga)
    client = signed_in(emil)
    assert client.get(at("report", project, theirs.pk)).status_code == 404
    assert client.get(at("report_csv", project, theirs.pk)).status_code == 404
