"""Names, notes and tags of runs; archiving and deleting them, by page and by API."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.monitoring.models import Incident
from apps.training import services
from apps.training.models import Checkpoint, FolderDeletion, Run, RunInput
from apps.training.selectors import pages
from tests.training.conftest import FakeWire
from tests.training.reports import report, saved
from tests.training.test_launching import model
from workers.artifacts import StoreUnreachable
from workers.contract import Finished, Metrics, Opened

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(project: Project, wire: FakeWire) -> Callable[..., Run]:
    def make(name: str, score: float | None = None, **more: Any) -> Run:
        given = {"kind": "drill", "config": {"steps": 3}, "inputs": {}} | more
        run = services.run_launch(project=project, name=name, **given)
        events = [Metrics(1, {"drill/loss": score, "loss": score})] if score is not None else []
        report(run, Opened(), *events, saved(3, "final", sha256=f"{run.pk:0>64}"), Finished(step=3))
        run.refresh_from_db()
        return run

    return make


@pytest.fixture
def engineer(client: Client, emil: User) -> Client:
    client.force_login(emil)
    return client


def api_of(project: Project, run: Run | None = None) -> str:
    return f"/api/v1/projects/{project.slug}/runs" + (f"/{run.pk}" if run else "")


def edit_of(project: Project, run: Run) -> str:
    return f"/p/{project.slug}/runs/{run.pk}/edit/"


def test_name_tags_and_note_are_changed_found_and_logged(
    project: Project, engineer: Client, runs: Callable[..., Run]
) -> None:
    run, other = runs("first"), runs("second")
    sent = {"name": "baseline ", "tags": "paper, for Ann,paper ,", "note": "loss stays at 2"}
    assert engineer.post(edit_of(project, run), sent).status_code == 302
    run.refresh_from_db()
    assert (run.name, run.tags, run.note) == ("baseline", ["paper", "for Ann"], "loss stays at 2")
    event = AuditEvent.objects.get(action="run.described")
    assert event.details["fields"] == "name, note, tags"
    for query in ({"tag": "for Ann"}, {"q": "stays at"}, {"q": "paper"}):
        page = engineer.get(f"/p/{project.slug}/runs/", query)
        assert [row["run"] for row in page.context["rows"]] == [run], query
    assert "loss stays at 2" in engineer.get(f"/p/{project.slug}/runs/{run.pk}/").content.decode()
    changed = engineer.patch(
        api_of(project, other), json.dumps({"tags": ["x"]}), content_type="application/json"
    ).json()
    assert (changed["name"], changed["tags"], changed["note"]) == ("second", ["x"], "")
    found = engineer.get(api_of(project), {"tag": "x"}).json()
    assert [row["id"] for row in found["items"]] == [other.pk]


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"name": " "}, "name"),
        ({"tags": ["a"] * 3 + ["b" * 41]}, "tags"),
        ({"tags": ["a,b"]}, "tags"),
        ({"tags": [str(n) for n in range(21)]}, "tags"),
        ({"note": "n" * 5_001}, "note"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field_and_nothing_is_changed(
    project: Project, engineer: Client, runs: Callable[..., Run], sent: dict[str, Any], field: str
) -> None:
    run = runs("first")
    answer = engineer.patch(
        api_of(project, run), json.dumps({"archived": True} | sent), content_type="application/json"
    )
    assert answer.status_code in (400, 422)
    assert answer.json()["field"] == field
    run.refresh_from_db()
    assert (run.name, run.tags, run.note, run.archived_at) == ("first", [], "", None)
    form = {"name": "first", "tags": "", "note": ""} | sent
    form["tags"] = ", ".join(form["tags"]) if isinstance(form["tags"], list) else form["tags"]
    if sent != {"tags": ["a,b"]}:  # which the page reads as two
        refused = engineer.post(edit_of(project, run), form)
        assert refused.status_code == 422
        assert field in refused.context["form"].errors


def test_an_archived_run_is_out_of_lists_and_choices_until_it_is_taken_back(
    project: Project, engineer: Client, runs: Callable[..., Run], emil: User
) -> None:
    kept, old = runs("kept"), runs("old")
    engineer.post(edit_of(project, old), {"action": "archive"})
    listed = [row["run"] for row in engineer.get(f"/p/{project.slug}/runs/").context["rows"]]
    assert listed == [kept]
    put_away = engineer.get(f"/p/{project.slug}/runs/", {"state": "archived"}).context["rows"]
    assert [row["run"] for row in put_away] == [old]
    assert [value for value, _ in pages.run_choices(project, {"drill"})] == [f"run:{kept.pk}"]
    choices = [value for value, _ in pages.checkpoint_choices(project, {"drill"})]
    assert choices == [f"checkpoint:{kept.checkpoints.get().pk}"]
    assert [row.run for row in pages.models_for_list(project=project)] == [kept]
    both = engineer.get(api_of(project)).json()
    assert both["count"] == 2
    engineer.post(edit_of(project, old), {"action": "unarchive"})
    assert engineer.get(f"/p/{project.slug}/runs/").context["page"].paginator.count == 2
    logged = list(AuditEvent.objects.filter(subject=old.pk).values_list("action", flat=True))
    assert {"run.archived", "run.unarchived"} <= set(logged)


def test_a_live_run_is_neither_archived_nor_deleted(
    project: Project, engineer: Client, wire: FakeWire
) -> None:
    run = services.run_launch(project=project, kind="drill", name="live", config={}, inputs={})
    for sent in ({"action": "archive"}, {"action": "delete", "typed": "live"}):
        assert engineer.post(edit_of(project, run), sent).status_code == 422
    answer = engineer.delete(f"{api_of(project, run)}?name=live")
    assert (answer.status_code, answer.json()["code"]) == (409, "run_live")
    assert Run.objects.filter(pk=run.pk, archived_at=None).exists()


def test_a_run_is_deleted_with_its_files_and_the_log_remembers_it(
    project: Project, engineer: Client, runs: Callable[..., Run], artifacts: Path
) -> None:
    run, other = runs("mistake"), runs("kept")
    check = runs("look", about=run)
    for one in (run, other, check):
        folder = artifacts / f"runs/{one.pk}/attempt-1"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
    wrong = engineer.post(edit_of(project, run), {"action": "delete", "typed": "mistak"})
    assert wrong.status_code == 422
    assert Run.objects.filter(pk=run.pk).exists()
    done = engineer.post(edit_of(project, run), {"action": "delete", "typed": "mistake"})
    assert done.status_code == 302
    assert list(Run.objects.all()) == [other]
    assert Checkpoint.objects.get().run == other
    assert FolderDeletion.objects.count() == 2
    services.runs_sweep()
    assert not FolderDeletion.objects.exists()
    assert [path.name for path in (artifacts / "runs").iterdir()] == [other.pk]
    event = AuditEvent.objects.get(action="run.deleted")
    assert (event.subject, event.details["name"]) == (run.pk, "mistake")
    assert "mistake" in engineer.get(f"/p/{project.slug}/runs/").content.decode()  # the message


def test_files_that_cannot_be_reached_are_deleted_by_a_later_sweep(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FolderDeletion.objects.create(folder="runs/gone")
    (artifacts / "runs/gone").mkdir(parents=True)

    class Away:
        def delete_tree(self, folder: str) -> None:
            raise StoreUnreachable("no store")

    with monkeypatch.context() as patch:
        patch.setattr("apps.training.services.housekeeping.artifact_store", Away)
        services.runs_sweep()
    assert FolderDeletion.objects.exists()
    services.runs_sweep()
    assert not FolderDeletion.objects.exists()
    assert not (artifacts / "runs/gone").exists()


def test_what_uses_a_run_keeps_it_from_being_deleted(
    project: Project, engineer: Client, runs: Callable[..., Run], emil: User
) -> None:
    run = runs("base")
    later = Run.objects.create(project=project, name="later", kind="dpo", config={})
    RunInput.objects.create(run=later, role="sft", checkpoint=run.checkpoints.get())
    Incident.objects.create(
        project=project,
        run=run,
        key="k",
        link="update",
        rule="loss_jump",
        title="Loss rises",
        severity="warning",
        opened_at=timezone.now(),
        heard_at=timezone.now(),
    )
    run.checkpoints.update(status=Checkpoint.Status.APPROVED)
    answer = engineer.delete(f"{api_of(project, run)}?name=base")
    assert (answer.status_code, answer.json()["code"]) == (409, "run_in_use")
    for word in ("later", "approved", "Loss rises"):
        assert word in answer.json()["message"]
    page = engineer.get(edit_of(project, run)).content.decode()
    assert "later" in page
    assert 'name="typed"' not in page
    with pytest.raises(Conflict):
        services.run_delete(run=run, typed="base", user=emil)
    assert Run.objects.filter(pk=run.pk).exists()


def test_the_list_shows_columns_of_choice_and_sorts_by_them(
    project: Project, engineer: Client, runs: Callable[..., Run]
) -> None:
    slow = runs("slow", config={"steps": 3, "step_seconds": 0.5}, seed=1)
    quick = runs("quick", config={"steps": 3, "step_seconds": 0.25}, seed=2)
    plain = runs("plain", config={"steps": 20})  # as its recipe's default has it
    address = f"/p/{project.slug}/runs/"
    query = {"columns": ["setting:step_seconds", "setting:steps"], "sort": "-setting:step_seconds"}
    page = engineer.get(address, query)
    rows = page.context["rows"]
    assert [row["run"] for row in rows[:2]] == [slow, quick]
    assert rows[0]["cells"] == ["0.500", "3"]
    assert rows[2]["run"] == plain
    assert rows[2]["cells"][1] == "20"
    upward = engineer.get(address, query | {"sort": "setting:steps"}).context["rows"]
    assert upward[-1]["run"] == plain
    named = engineer.get(address, {"sort": "name"}).context["rows"]
    assert [row["run"].name for row in named] == ["plain", "quick", "slow"]
    assert 'aria-sort="descending"' in page.content.decode()
    nothing = engineer.get(address, {"columns": ["setting:nope", "x"], "sort": "metric:nope"})
    assert nothing.status_code == 200
    assert nothing.context["table"].chosen == []


def test_a_figure_is_a_column_and_runs_without_it_come_last(
    project: Project, engineer: Client, wire: FakeWire
) -> None:
    low, high, none = (model(project, "dpo").run for _ in range(3))
    name = "eval/rewards/accuracies"
    for run, value in ((low, 0.25), (high, 0.75)):
        services.metrics_store(run=run, attempt=1, series={name: [(1, value)]})
    query = {"columns": [f"metric:{name}"], "sort": f"-metric:{name}"}
    rows = engineer.get(f"/p/{project.slug}/runs/", query).context["rows"]
    assert [row["run"] for row in rows] == [high, low, none]
    assert [row["cells"] for row in rows] == [["0.750"], ["0.250"], ["—"]]
