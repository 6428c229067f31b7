"""A check's own page says what it found; the list of runs shows checks when asked for them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.playbook import experiment_words
from apps.training.models import Artifact, Run, RunInput
from measures.blocks import Table

FOUND = {
    "check": "rescore",
    "outcome": "confirms",
    "words": "43 of 128 kept answers score differently when asked again.",
    "n": 128,
    "figures": {"differing": 43},
}


@pytest.fixture
def policy(project: Project) -> Run:
    return Run.objects.create(
        project=project, name="the policy", kind="ppo", state="finished", ended_at=timezone.now()
    )


def check_make(about: Run, folder: Path, summary: dict[str, Any], evidence: list[Any]) -> Run:
    run = Run.objects.create(
        project=about.project,
        name="Rescoring of the policy",
        kind="check",
        queue="short",
        state="finished",
        config={"check": "rescore"},
        summary=summary,
        about=about,
        ended_at=timezone.now(),
    )
    text = json.dumps({"version": 1, **summary, "evidence": evidence}).encode()
    (folder / "check.json").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    Artifact.objects.create(
        run=run, attempt=1, seq=1, name="check.json", uri="check.json", sha256=digest
    )
    return run


@pytest.fixture
def check(policy: Run, tmp_path: Path, settings: Settings) -> Run:
    settings.ARTIFACTS_URL = str(tmp_path)
    table = Table(
        title="Largest differences",
        columns=("Step and place", "Kept", "Now"),
        formats=("text", "number", "number"),
        rows=(("4/31", 0.5, -1.25),),
    )
    block = {name: getattr(table, name) for name in ("title", "columns", "formats", "rows", "kind")}
    return check_make(policy, tmp_path, FOUND, [block, {"kind": "nonsense"}])


def page(client: Client, run: Run, query: str = "") -> str:
    answer = client.get(f"/p/{run.project.slug}/runs/{run.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_check_says_what_it_found_and_which_run_it_is_about(
    check: Run, policy: Run, signed_in: Callable[[User], Client], emil: User
) -> None:
    text = page(signed_in(emil), check)
    assert "43 of 128 kept answers" in text
    assert "Suspicion confirmed" in text
    asked = experiment_words("rescore")
    assert asked.do in text
    assert asked.readings[0].text in text
    assert f"/runs/{policy.pk}/?tab=diagnosis" in text
    assert "Largest differences" in text
    assert "−1.25" in text


@pytest.mark.parametrize("tab", ["charts", "config", "lineage", "repeat", "checks", "logs"])
def test_every_tab_of_a_check_that_read_a_file_opens(
    check: Run, policy: Run, signed_in: Callable[[User], Client], emil: User, tab: str
) -> None:
    kept = Artifact.objects.create(
        run=policy, attempt=1, seq=2, name="rollouts.jsonl", uri="x", sha256="0" * 64
    )
    RunInput.objects.create(run=check, role="rollouts", artifact=kept)
    text = page(signed_in(emil), check, f"?tab={tab}")
    if tab == "lineage":
        assert "its rollouts.jsonl" in text


def test_what_a_trainer_wrote_wrongly_breaks_no_page(
    policy: Run, tmp_path: Path, settings: Settings, signed_in: Callable[[User], Client], emil: User
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path)
    odd = check_make(policy, tmp_path, {"outcome": ["confirms"], "words": 3}, ["x"])
    assert "What it found" not in page(signed_in(emil), odd)
    odd = check_make(policy, tmp_path, FOUND, [{"kind": "table", "columns": 3}])
    Artifact.objects.filter(run=odd).update(sha256="0" * 64)
    assert "cannot be read" in page(signed_in(emil), odd)


def test_a_probe_shows_its_figures(
    project: Project, signed_in: Callable[[User], Client], emil: User
) -> None:
    probe = Run.objects.create(
        project=project,
        name="probe of the judge",
        kind="probe",
        state="finished",
        summary={
            "figures": {"score": {"mean": 0.25, "deviation": 1.5, "n": 40}, "odd": {"mean": "x"}},
            "weights_sha256": {"reward": "a" * 64},
        },
        ended_at=timezone.now(),
    )
    text = page(signed_in(emil), probe)
    assert "Results" in text
    assert "0.25" in text
    assert '<td class="num">40</td>' in text


def test_the_list_of_runs_shows_checks_when_asked_for_them(
    check: Run, policy: Run, signed_in: Callable[[User], Client], emil: User
) -> None:
    client = signed_in(emil)

    def listed(query: str) -> list[bool]:
        text = client.get(f"/p/{check.project.slug}/runs/{query}").content.decode()
        return [f"/runs/{run.pk}/" in text for run in (policy, check)]

    assert listed("") == [True, False]
    assert listed("?kind=everything") == [True, True]
    assert listed("?kind=check") == [False, True]
    assert listed("?q=Rescoring") == [False, True]
