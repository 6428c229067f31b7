"""The suite that every policy is evaluated on when its training has ended."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Notice, Project, User
from apps.common.errors import DomainError
from apps.evaluation.models import AutomaticSuite, SuiteLaunch
from apps.evaluation.services import suites
from apps.evaluation.services.suites import (
    automatic_suite_set,
    automatic_suite_stop,
    suite_launch,
    suites_launch,
)
from apps.snapshots.models import Snapshot
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.suites import suite_add
from apps.training.models import Checkpoint, Run, RunInput, RunQuota
from tests.evaluation.promoted import run_made, saved
from tests.training.conftest import artifacts, commits, wire
from tests.training.reports import report
from workers.config import settings_for
from workers.contract import Finished, Opened

pytestmark = pytest.mark.usefixtures("wire", "artifacts")
__all__ = ["artifacts", "commits", "wire"]


@pytest.fixture
def baseline(project: Project) -> Checkpoint:
    return saved(run_made(project, "register_policy", "base"), 0)


@pytest.fixture
def on(project: Project, emil: User, baseline: Checkpoint) -> AutomaticSuite:
    suite, _ = suite_add(project=project, user=emil)
    return automatic_suite_set(
        project=project, dataset_id=suite.pk, baseline_id=baseline.pk, user=emil
    )


def ended(project: Project, kind: str = "sft", **fields: Any) -> Run:
    run = run_made(project, kind, f"a {kind} run", **fields)
    saved(run)
    return run


def launched(project: Project) -> list[Run]:
    return list(Run.objects.filter(project=project, kind="evaluate"))


def test_it_is_off_until_somebody_switches_it_on(project: Project) -> None:
    run = ended(project)
    assert suite_launch(run_id=run.pk) is None
    assert suites_launch() == 0
    assert launched(project) == []


def test_a_run_that_ends_well_is_followed_by_one_evaluation(
    project: Project, on: AutomaticSuite, baseline: Checkpoint, commits: Callable[..., Any]
) -> None:
    run = run_made(project, "ppo", "policy", state="running", ended_at=None)
    model = saved(run)
    with commits():
        report(run, Opened(), Finished(step=400))
    assert run.state == "finished"
    (evaluation,) = launched(project)
    given = {one.role: one for one in RunInput.objects.filter(run=evaluation)}
    assert given["policy"].checkpoint == model
    assert given["sft"].checkpoint == baseline
    assert given["prompts"].snapshot == on.dataset
    settings = settings_for("evaluate", evaluation.config)
    assert (settings.max_prompts, settings.temperature) == (140, 0.0)
    assert suite_launch(run_id=run.pk) is None, "heard of twice"
    assert suites_launch() == 0
    assert launched(project) == [evaluation]


def test_what_a_killed_process_left_undone_is_found_by_the_scheduler(
    project: Project, on: AutomaticSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(project, "dpo")

    def killed(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SuiteLaunch.objects, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            suite_launch(run_id=run.pk)
    assert launched(project) == [], "no evaluation without the row that says so"
    assert suites_launch() == 1
    assert len(launched(project)) == 1
    assert suites_launch() == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "reward"},
        {"kind": "evaluate"},
        {"state": "failed", "failure_kind": "bad_data"},
        {"ended_at": timezone.now() - timedelta(days=2)},
    ],
    ids=["no policy", "an evaluation", "failed", "before it was on"],
)
def test_other_ends_launch_nothing(
    project: Project, on: AutomaticSuite, fields: dict[str, Any]
) -> None:
    run = ended(project, **fields)
    before = launched(project)
    assert suite_launch(run_id=run.pk) is None
    assert suites_launch() == 0
    assert launched(project) == before


def test_a_run_in_small_that_looks_for_a_problem_is_not_evaluated(
    project: Project, on: AutomaticSuite
) -> None:
    about = run_made(project, "ppo", "failed", state="failed", failure_kind="bad_data")
    assert suite_launch(run_id=ended(project, "ppo", about=about).pk) is None


def test_a_full_quota_is_told_once_and_tried_again_by_a_person(
    project: Project, on: AutomaticSuite, emil: User, client: Client
) -> None:
    quota = RunQuota.objects.create(project=project, space_bytes=1)
    run = ended(project)
    assert suites_launch() == 1
    row = SuiteLaunch.objects.get(run=run)
    assert (row.evaluation, row.code) == (None, "space_quota_used")
    assert "quota" in row.problem
    assert suites_launch() == 0, "it is not tried again by itself"
    assert launched(project) == []
    assert Notice.objects.filter(kind="suite.refused").count() == 1
    assert AuditEvent.objects.filter(action="suite.refused", subject=run.pk).count() == 1
    client.force_login(emil)
    here = reverse("evaluation:automatic_suite", args=[project.slug])
    assert row.problem[:40] in client.get(here).content.decode()
    again = f"/api/v1/projects/{project.slug}/automatic-suite/{run.pk}"
    assert client.post(again).status_code == 409, "still full"
    quota.delete()
    made = client.post(here, {"action": "again", "run": run.pk}, follow=True)
    assert "The evaluation is launched." in made.content.decode()
    (evaluation,) = launched(project)
    assert SuiteLaunch.objects.get(run=run).evaluation == evaluation
    assert client.post(again).status_code == 404, "nothing is refused any more"


def test_prompts_that_the_policy_learned_from_are_refused_with_the_reason(
    project: Project, baseline: Checkpoint, emil: User
) -> None:
    check = {"category": "answers", "test": "answers"}
    rows = [{"prompt": f"Question {k * k + 7}?", "check": check, "split": "dev"} for k in range(3)]
    mine = snapshot_import(project=project, kind="prompts", name="mine", rows=rows)
    automatic_suite_set(project=project, dataset_id=mine.pk, baseline_id=baseline.pk, user=emil)
    said = {"prompt": rows[0]["prompt"], "response": "So.", "split": "train"}
    other = {"prompt": "Held out?", "response": "No.", "split": "dev"}
    seen = snapshot_import(project=project, kind="demonstrations", name="seen", rows=[said, other])
    run = ended(project)
    RunInput.objects.create(run=run, role="data", snapshot=seen)
    assert suites_launch() == 1
    assert SuiteLaunch.objects.get(run=run).code == "prompts_overlap"


def test_one_failure_holds_up_no_other_run(
    project: Project, on: AutomaticSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = ended(project), ended(project, "dpo")
    original = suites._launch

    def broken(row: AutomaticSuite, run: Run, **more: Any) -> SuiteLaunch:
        if run.pk == bad.pk:
            raise RuntimeError("a bug")
        return original(row, run, **more)

    monkeypatch.setattr(suites, "_launch", broken)
    assert suites_launch() == 1
    assert SuiteLaunch.objects.get().run == good


def test_what_is_no_suite_is_refused_by_field(
    project: Project, emil: User, baseline: Checkpoint, snapshot_plain: Snapshot
) -> None:
    suite, _ = suite_add(project=project, user=emil)
    reward = saved(run_made(project, "reward", "reward"))
    for dataset, model, field in (
        (snapshot_plain.pk, baseline.pk, "dataset"),
        ("none", baseline.pk, "dataset"),
        (suite.pk, "none", "baseline"),
        (suite.pk, reward.pk, "baseline"),
    ):
        with pytest.raises(DomainError) as refused:
            automatic_suite_set(project=project, dataset_id=dataset, baseline_id=model, user=emil)
        assert refused.value.field == field
    assert not AutomaticSuite.objects.exists()


@pytest.fixture
def snapshot_plain(project: Project) -> Snapshot:
    rows = [{"prompt": f"Thing {k * k}?", "split": "dev" if k else "train"} for k in range(3)]
    return snapshot_import(project=project, kind="prompts", name="plain", rows=rows)


def test_emil_switches_it_on_and_off_by_page_and_api(
    project: Project, emil: User, baseline: Checkpoint, client: Client
) -> None:
    client.force_login(emil)
    here = reverse("evaluation:automatic_suite", args=[project.slug])
    assert "No suite yet" in client.get(here).content.decode()
    suite, _ = suite_add(project=project, user=emil)
    sent = {"dataset": suite.pk, "baseline": baseline.pk, "max_new_tokens": 64, "temperature": 0}
    assert client.post(here, sent | {"action": "set"}).status_code == 302
    assert client.post(here, sent | {"action": "set", "baseline": "x"}).status_code == 422
    path = f"/api/v1/projects/{project.slug}/automatic-suite"
    told = client.get(path).json()
    assert (told["dataset"], told["baseline"], told["max_new_tokens"]) == (
        suite.pk,
        baseline.pk,
        64,
    )
    assert client.delete(path).json()["since"] is None
    assert client.put(path, sent, content_type="application/json").json()["since"]
    automatic_suite_stop(project=project, user=emil)
    actions = AuditEvent.objects.filter(action__startswith="suite.").values_list(
        "action", flat=True
    )
    assert sorted(actions) == [
        *["suite.automatic_set"] * 2,
        *["suite.automatic_stopped"] * 2,
    ]
