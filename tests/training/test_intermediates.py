"""Intermediate checkpoints and trainer states removed: by a project's retention, and by hand."""

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.monitoring.models import Watch
from apps.snapshots.models import Snapshot
from apps.training import services
from apps.training.models import Checkpoint, FolderDeletion, Run, RunInput
from apps.training.selectors import checkpoint_for_use, pages
from apps.training.selectors.intermediates import removal_of
from apps.training.selectors.space import bytes_listed, project_space
from apps.training.services.kinds import models_hold
from tests.training.conftest import FakeWire
from tests.training.reports import report, saved
from workers.artifacts import ArtifactError, Store, StoreUnreachable
from workers.contract import Failed, Finished, Opened

pytestmark = pytest.mark.django_db

STATE, WEIGHTS = b"s" * 700, b"w" * 300


@pytest.fixture
def trained(
    project: Project, wire: FakeWire, artifacts: Path, tmp_path: Path
) -> Callable[..., Run]:
    """A run that ended `days` ago with a checkpoint at each step of `kept`: its tags by step."""

    def make(name: str, kept: dict[int, list[str]], days: int = 10, end: Any = None) -> Run:
        run = services.run_launch(project=project, kind="drill", name=name, config={}, inputs={})
        report(run, Opened())
        store = Store(str(artifacts))
        for seq, (step, tags) in enumerate(kept.items(), 2):
            folder = tmp_path / name / str(step)
            (folder / "resume").mkdir(parents=True)
            (folder / "model.safetensors").write_bytes(WEIGHTS + str(step).encode())
            (folder / "resume" / "optimizer.pt").write_bytes(STATE)
            uri = f"runs/{run.pk}/attempt-1/checkpoints/step-{step}"
            sha256, size = store.put_tree(folder, uri)
            event = saved(step, uri=uri, sha256=sha256, size_bytes=size)
            report(run, event, first=seq)
            Checkpoint.objects.filter(run=run, step=step).update(tags=tags)
        report(run, end or Finished(step=max(kept)), first=len(kept) + 2)
        Checkpoint.objects.filter(run=run).update(files_removed_at=None, removed_by="")
        Run.objects.filter(pk=run.pk).update(ended_at=timezone.now() - timedelta(days=days))
        run.refresh_from_db()
        return run

    return make


@pytest.fixture
def week(project: Project) -> None:
    services.quota_set(project=project, keep_days=7)


def at(run: Run, step: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run, step=step)


def files_of(artifacts: Path, run: Run) -> set[str]:
    home = artifacts / "runs" / run.pk / "attempt-1" / "checkpoints"
    found = (path for path in home.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(home)) for path in found}


def weights(*steps: int) -> set[str]:
    return {f"step-{step}/model.safetensors" for step in steps}


def states(*steps: int) -> set[str]:
    return {f"step-{step}/resume/optimizer.pt" for step in steps}


def test_after_its_days_a_run_keeps_its_best_and_last_models_and_nothing_else(
    project: Project, trained: Callable[..., Run], week: None, artifacts: Path
) -> None:
    run = trained("old", {5: [], 10: ["best"], 15: ["failed"], 20: [], 25: ["last", "final"]})
    young = trained("young", {5: [], 10: ["final"]}, days=6)
    before = bytes_listed(project)
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(10, 25)
    assert files_of(artifacts, young) == weights(5, 10) | states(5, 10)
    assert before - bytes_listed(project) == sum(
        len(one) for one in (STATE, STATE, *[STATE + WEIGHTS] * 3)
    ) + len("5" + "15" + "20")
    assert Checkpoint.objects.filter(run=run).count() == 5
    assert not FolderDeletion.objects.exists()
    gone = removal_of(run)
    assert gone is not None
    assert (gone.models, gone.states, gone.words) == (3, 2, "by the project's retention rule")
    event = AuditEvent.objects.get(action="run.intermediates_removed")
    assert (event.subject, event.actor, event.details["models"]) == (run.pk, None, 3)
    with pytest.raises(Conflict) as refused:
        launch_from(at(run, 20))
    assert (refused.value.code, refused.value.field) == ("files_removed", "inputs.base")
    assert launch_from(at(run, 25)).attempt == 1
    assert checkpoint_for_use(run) == at(run, 25)
    choices = [value for value, _ in pages.checkpoint_choices(project, {"drill"})]
    assert f"checkpoint:{at(run, 15).pk}" not in choices


def launch_from(model: Checkpoint) -> Run:
    return services.run_launch(
        project=model.project, kind="drill", name="next", config={}, inputs={"base": model}
    )


def test_by_default_everything_is_kept_for_ever(
    trained: Callable[..., Run], artifacts: Path
) -> None:
    run = trained("old", {5: [], 10: ["final"]}, days=5_000)
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(5, 10) | states(5, 10)


def test_what_somebody_needs_is_kept_whoever_it_is(
    project: Project,
    trained: Callable[..., Run],
    week: None,
    artifacts: Path,
    snapshot_make: Callable[..., Snapshot],
) -> None:
    run = trained("old", {step: [] for step in (1, 2, 3, 4, 5, 6)} | {7: ["final"]})
    later = Run.objects.create(project=project, name="later", kind="dpo", config={})
    other = Project.objects.create(name="Other", slug="other")
    copy = Run.objects.create(project=other, name="copy", kind="register_policy", config={})
    RunInput.objects.create(run=later, role="sft", checkpoint=at(run, 1))
    RunInput.objects.create(run=copy, role="base", checkpoint=at(run, 2))
    Checkpoint.objects.filter(pk=at(run, 3).pk).update(status=Checkpoint.Status.APPROVED)
    Watch.objects.create(
        project=project,
        kind="policy",
        name="watched",
        checkpoint=at(run, 4),
        reward=at(run, 5),
        prompts=snapshot_make("prompts"),
        next_at=timezone.now(),
    )
    services.runs_sweep()
    services.runs_sweep()  # five folders at a time
    assert files_of(artifacts, run) == weights(1, 2, 3, 4, 5, 7)


def test_a_folder_that_a_kept_checkpoint_names_too_is_kept(
    trained: Callable[..., Run], week: None, artifacts: Path
) -> None:
    run = trained("old", {5: [], 10: ["final"]})
    last = at(run, 10)
    again = {"attempt": 1, "step": 10, "sha256": "a" * 64, "uri": last.uri}
    Checkpoint.objects.create(project=run.project, run=run, **again)
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(10)


def test_a_model_without_its_trainer_state_is_still_read_as_an_input_and_not_resumed_from(
    trained: Callable[..., Run], week: None, artifacts: Path, tmp_path: Path
) -> None:
    run = trained("old", {10: ["final"]})
    services.runs_sweep()
    row, store = at(run, 10), Store(str(artifacts))
    named: dict[str, Any] = {"sha256": row.sha256, "cache": tmp_path / "cache"}
    assert store.get_tree(row.uri, **named, with_state=False).is_dir()
    with pytest.raises(ArtifactError, match=r"optimizer\.pt"):
        store.get_tree(row.uri, **named)
    (artifacts / row.uri / "model.safetensors").write_bytes(b"another")
    with pytest.raises(ArtifactError, match="damaged"):
        store.get_tree(row.uri, **named, with_state=False)


def test_from_a_store_elsewhere_a_missing_trainer_state_is_passed_over(tmp_path: Path) -> None:
    store = Store("memory://intermediates")
    folder = tmp_path / "model"
    (folder / "resume").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "resume" / "optimizer.pt").write_bytes(STATE)
    sha256, _ = store.put_tree(folder, "m")
    assert store.bytes_below("m/resume") == len(STATE)
    store.delete_tree("m/resume")
    assert store.bytes_below("m/resume") == 0
    read = store.get_tree("m", sha256=sha256, cache=tmp_path / "a", with_state=False)
    assert [one.name for one in read.rglob("*") if one.is_file()] == ["model.safetensors"]
    with pytest.raises(ArtifactError):
        store.get_tree("m", sha256=sha256, cache=tmp_path / "b")


def test_a_failed_run_is_resumed_until_its_days_are_over_and_then_refused_by_page_and_api(
    project: Project, trained: Callable[..., Run], week: None, client: Client, emil: User
) -> None:
    client.force_login(emil)
    end = Failed("out_of_memory", "machine", "No memory.")
    young = trained("young", {5: ["last"]}, days=6, end=end)
    old = trained("old", {5: ["last"]}, days=8, end=end)
    services.runs_sweep()
    assert 'id="resume-button"' in client.get(page_of(young)).content.decode()
    services.run_resume(run=young)
    young.refresh_from_db()
    assert young.attempts.get(number=2).resumed_from_step == 5
    page = client.get(page_of(old)).content.decode()
    assert 'id="resume-button"' not in page
    assert "by the project&#x27;s retention rule" in page
    assert client.post(f"{page_of(old)}resume/").status_code == 409
    refused = client.post(f"/api/v1/projects/{project.slug}/runs/{old.pk}/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "state_removed")
    old.refresh_from_db()
    assert (old.state, old.attempt) == ("failed", 1)


def page_of(run: Run) -> str:
    return f"/p/{run.project.slug}/runs/{run.pk}/"


def test_a_run_that_saved_nothing_starts_over_whenever_it_is_resumed(
    project: Project, wire: FakeWire, artifacts: Path, week: None
) -> None:
    run = services.run_launch(project=project, kind="drill", name="n", config={}, inputs={})
    report(run, Opened(), Failed("out_of_memory", "machine", "No memory."))
    Run.objects.filter(pk=run.pk).update(ended_at=timezone.now() - timedelta(days=100))
    services.runs_sweep()
    assert services.run_resume(run=run).attempt == 2


def test_a_sweep_that_is_killed_among_the_files_goes_on_where_it_was(
    project: Project,
    trained: Callable[..., Run],
    week: None,
    artifacts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = trained("old", {5: [], 10: ["best"], 15: [], 20: ["final"]})

    class Killed(BaseException):
        """As a signal ends a process: nothing catches it."""

    deleted: list[str] = []

    def delete(self: Store, folder: str) -> None:
        if len(deleted) == 1:  # in the middle of a folder
            (artifacts / folder / "model.safetensors").unlink(missing_ok=True)
            raise Killed
        deleted.append(folder)
        whole(self, folder)

    whole = Store.delete_tree
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete_tree", delete)
        with pytest.raises(Killed):
            services.runs_sweep()
    left = bytes_listed(project)
    assert FolderDeletion.objects.count() == 3
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(10, 20)
    assert not FolderDeletion.objects.exists()
    assert bytes_listed(project) == left
    assert AuditEvent.objects.filter(action="run.intermediates_removed").count() == 1


def test_while_the_store_is_away_nothing_is_given_up(
    trained: Callable[..., Run], week: None, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained("old", {5: [], 10: ["final"]})

    def away(self: Store, folder: str) -> int:
        raise StoreUnreachable("no store")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "bytes_below", away)
        services.runs_sweep()
    assert at(run, 5).files_removed_at is None
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(10)


def in_another_connection(work: Callable[[], object]) -> None:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.django_db(transaction=True)
def test_a_checkpoint_that_a_launch_is_taking_is_not_removed(
    trained: Callable[..., Run], week: None, artifacts: Path
) -> None:
    run = trained("old", {5: [], 10: ["final"]})
    reader = Run.objects.create(project=run.project, name="reader", kind="drill", config={})
    with transaction.atomic():  # as in a launch: it holds the model, then stores what it reads
        models_hold([at(run, 5).pk])
        in_another_connection(services.intermediates_expire)
        assert at(run, 5).files_removed_at is None
        RunInput.objects.create(run=reader, role="base", checkpoint=at(run, 5))
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(5, 10)


@pytest.mark.django_db(transaction=True)
def test_a_launch_that_comes_while_a_checkpoint_is_being_removed_is_refused(
    trained: Callable[..., Run], week: None, wire: FakeWire
) -> None:
    run = trained("old", {5: [], 10: ["final"]})
    model = at(run, 5)  # as the launch has read it, before
    told: list[str] = []

    def launch() -> None:
        try:
            launch_from(model)
        except Conflict as error:
            told.append(error.code)

    jobs = len(wire.jobs)
    with transaction.atomic():
        assert services.intermediates_expire() == 1
        thread = threading.Thread(target=lambda: (launch(), connection.close()))
        thread.start()
        thread.join(1)
        assert thread.is_alive()  # it waits for this transaction
    thread.join(30)
    assert told == ["files_removed"]
    assert Run.objects.count() == 1
    assert len(wire.jobs) == jobs


def test_one_run_is_thinned_by_hand_by_page_and_api(
    project: Project,
    trained: Callable[..., Run],
    client: Client,
    emil: User,
    ana: User,
    artifacts: Path,
) -> None:
    run, other = trained("one", {5: [], 10: ["final"]}), trained("two", {5: [], 10: ["final"]})
    address = f"/p/{project.slug}/runs/{run.pk}/intermediates/"
    client.force_login(ana)
    assert client.post(address).status_code == 403
    client.force_login(emil)
    asked = client.get(address).content.decode()
    assert "1.7 kB" in asked
    assert at(run, 5).files_removed_at is None
    assert client.post(address).status_code == 302
    api = f"/api/v1/projects/{project.slug}/runs/{other.pk}/remove-intermediates"
    size = len(STATE) * 2 + len(WEIGHTS) + len("5")
    assert client.post(api).json() == {"models": 1, "states": 1, "size": size}
    assert client.post(api).json() == {"models": 0, "states": 0, "size": 0}
    services.runs_sweep()
    for one in (run, other):
        assert files_of(artifacts, one) == weights(10)
    assert AuditEvent.objects.filter(action="run.intermediates_removed", actor=emil).count() == 2
    assert "removed on" in client.get(page_of(run)).content.decode()
    assert "by hand" in client.get(f"/p/{project.slug}/models/{at(run, 5).pk}/").content.decode()
    row = client.get(f"/api/v1/projects/{project.slug}/runs/{run.pk}").json()["checkpoints"]
    assert [bool(one["files_removed_at"]) for one in row] == [False, True]
    assert [bool(one["state_removed_at"]) for one in row] == [True, False]


def test_a_live_run_is_never_thinned(
    project: Project, trained: Callable[..., Run], week: None, wire: FakeWire, artifacts: Path
) -> None:
    run = trained("old", {5: ["last"]}, end=Failed("out_of_memory", "machine", "No memory."))
    services.run_resume(run=run)
    services.runs_sweep()
    assert files_of(artifacts, run) == weights(5) | states(5)
    with pytest.raises(Conflict) as refused:
        services.intermediates_remove(run=run, user=None)
    assert refused.value.code == "run_live"


def test_the_space_page_says_what_goes_and_when(
    project: Project, trained: Callable[..., Run], week: None, client: Client, emil: User
) -> None:
    run = trained("one", {5: [], 10: ["final"]}, days=3)
    client.force_login(emil)
    (line,) = project_space(project).lines
    assert line.frees == len(STATE) * 2 + len(WEIGHTS) + 1
    assert run.ended_at is not None
    goes = run.ended_at + timedelta(days=7)
    assert line.frees_at == goes
    page = client.get(f"/p/{project.slug}/space/").content.decode()
    assert f"removed on {goes:%-d %B %Y}" in page
    assert f"/runs/{run.pk}/intermediates/" in page
    services.intermediates_remove(run=run, user=emil)
    services.runs_sweep()
    (line,) = project_space(project).lines
    assert (line.frees, line.frees_at) == (None, None)


def test_a_checkpoint_that_the_trainer_deleted_takes_no_space(
    project: Project, wire: FakeWire
) -> None:
    run = services.run_launch(project=project, kind="drill", name="n", config={}, inputs={})
    events = [saved(1, "best"), *(saved(step, "last") for step in (2, 3, 4, 5))]
    report(run, Opened(), *events)
    rows = Checkpoint.objects.filter(run=run).order_by("step")
    assert [row.removed_by for row in rows] == ["", "trainer", "trainer", "", ""]
    assert bytes_listed(project) == 30
