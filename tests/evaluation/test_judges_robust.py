"""Judges when runs, files and servers do what they should not."""

from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.evaluation.models import JudgeRun, JudgeVerdict
from apps.evaluation.selectors.judges import Scope, measurement_of
from apps.evaluation.services import judges as services
from apps.evaluation.services.judge_sweep import judges_sweep
from apps.evaluation.services.judge_worth import judge_measure
from apps.labeling.models import Task
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from tests.evaluation.judged import answered, ended, judge_of, right, voted
from workers.artifacts import Store, StoreUnreachable

ALL = Scope()


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


def asked_of(project: Project, user: User, n: int = 30, **about: Any) -> JudgeRun:
    voted(project, n)
    asked = judge_measure(version=judge_of(project, user, **about), scope=ALL, user=user, share=1.0)
    assert isinstance(asked, JudgeRun)
    return asked


def asked_again(asked: JudgeRun) -> JudgeRun:
    asked.refresh_from_db()
    return asked


def test_a_run_that_failed_and_was_resumed_is_taken_over_after_all(
    project: Project, emil: User
) -> None:
    asked = asked_of(project, emil)
    ended_at = {"ended_at": timezone.now()}
    Run.objects.filter(pk=asked.run_id).update(state="failed", failure_kind="bad_data", **ended_at)
    judges_sweep()
    assert "failed" in asked_again(asked).problem
    Run.objects.filter(pk=asked.run_id).update(state="running", failure_kind="", ended_at=None)
    judges_sweep()
    answered(asked, right())
    found = asked_again(asked)
    assert (found.problem, found.acted) == ("", True)
    assert JudgeVerdict.objects.count() == 30
    assert measurement_of(found.version) is not None


def test_a_store_that_does_not_answer_costs_no_verdicts(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of(project, emil)

    def away(*args: Any, **kwargs: Any) -> bytes:
        raise StoreUnreachable("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "read_bytes", away)
        answered(asked, right())
    assert (asked_again(asked).problem, asked.taken_at) == ("", None)
    judges_sweep()
    assert JudgeVerdict.objects.count() == 30


@pytest.mark.parametrize(
    "line",
    [
        '{"pair": "999999999999999999999999999999", "first": 1, "second": 0}',
        '{"pair": "' + "9" * 5000 + '", "first": 1, "second": 0}',
        '{"pair": 7, "first": 1, "second": 0}',
        '{"pair": "PAIR", "first": NaN, "second": 0}',
        '{"pair": "PAIR", "first": 1e999, "second": 0}',
        '{"pair": "PAIR", "first": "1", "second": 0}',
        '{"pair": "OTHER", "first": 1, "second": 0}',
        '{"pair": "UNASKED", "first": 1, "second": 0}',
        "[" * 100_000,
        '{"pair": "PAIR", "first": 0.',
        "[]",
        "7",
    ],
)
def test_a_hostile_file_of_verdicts_is_refused_once_and_whole(
    project: Project, emil: User, line: str
) -> None:
    asked = asked_of(project, emil, 3)
    voted(project, 1, start=500)
    other = Project.objects.create(slug="elsewhere", name="Elsewhere")
    voted(other, 1)
    names = {
        "PAIR": Task.objects.filter(project=project).order_by("pk")[0].pk,
        "OTHER": Task.objects.filter(project=other)[0].pk,
        "UNASKED": Task.objects.filter(project=project).order_by("-pk")[0].pk,
    }
    for name, pk in names.items():
        line = line.replace(f'"{name}"', f'"{pk}"')
    ended(asked.run, [{"pair": str(names["PAIR"]), "first": 1, "second": 0}], {"step": 1})
    row = asked.run.artifacts.get()
    data = artifact_store().read_bytes(row.uri, sha256=row.sha256) + line.encode()
    artifact_store().write_bytes(row.uri, data)
    row.sha256, row.size_bytes = sha256(data).hexdigest(), len(data)
    row.save()
    judges_sweep()
    assert "cannot be read" in asked_again(asked).problem
    assert not JudgeVerdict.objects.exists()


def test_of_a_pair_that_stands_twice_the_first_verdict_holds(project: Project, emil: User) -> None:
    asked = asked_of(project, emil, 1)
    pair = str(Task.objects.get().pk)
    rows = [{"pair": pair, "first": one, "second": 1 - one} for one in (1, 0)]
    ended(asked.run, rows, {"step": 1})
    judges_sweep()
    assert JudgeVerdict.objects.get().preference == 1


def test_what_fails_for_hours_is_said_and_holds_nothing_up(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of(project, emil)

    def broken(*args: Any) -> None:
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patched:
        patched.setattr(services, "_verdicts_keep", broken)
        answered(asked, right())
        assert asked_again(asked).problem == ""  # tried again
        Run.objects.filter(pk=asked.run_id).update(ended_at=timezone.now() - timedelta(hours=7))
        judges_sweep()
    assert "RuntimeError" in asked_again(asked).problem
    assert asked.acted


def test_one_broken_probe_or_audit_stops_no_other(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked_of(project, emil)
    answered(one, right(), sweep=False)
    two = judge_measure(version=judge_of(project, emil, name="Jody"), scope=ALL, user=emil)
    assert isinstance(two, JudgeRun)
    answered(two, right(), sweep=False)
    real = services.pairs_freeze

    def broken(*, name: str, **about: Any) -> Any:
        if name.startswith("Judy"):
            raise RuntimeError("no such luck")
        return real(name=name, **about)

    monkeypatch.setattr(services, "pairs_freeze", broken)
    judges_sweep()
    assert [run.version for run in JudgeRun.objects.filter(purpose="probe")] == [two.version]
