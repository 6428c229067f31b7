"""A run trained elsewhere, by its metrics file: stored whole or not at all, and diagnosed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEvent, Project, User
from apps.monitoring.services import imports
from apps.monitoring.services.imports import run_import
from apps.training.models import MetricBlock, Run
from apps.training.selectors import metric_series

SignIn = Callable[[User], Client]
EVENTS = Path(__file__).parent.parent / "workers" / "diagnosis" / "files" / "scalars.tfevents"


def verl(steps: int = 60) -> bytes:
    """Verl's names; from step 30 on most ratios are clipped."""
    rows = [
        {
            "step": step,
            "actor/pg_clipfrac": 0.1 if step < 30 else 0.6,
            "critic/score/mean": 0.1 * step,
            "my/own": step,
        }
        for step in range(1, steps + 1)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def upload(client: Client, project: Project, name: str, data: bytes, **fields: str):
    file = SimpleUploadedFile(name, data)
    url = reverse("monitoring:run_import", args=[project.slug])
    return client.post(url, {"file": file, "trained_as": "ppo"} | fields)


def test_emil_imports_a_run_and_reads_its_diagnosis(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    sent = upload(client, project, "verl.jsonl", verl())
    run = Run.objects.get(kind="imported")
    assert sent["Location"].endswith(f"/runs/{run.pk}/?tab=diagnosis")
    assert (run.name, run.state, run.step, run.created_by) == ("verl", "finished", 60, emil)
    assert run.config == {"file": "verl.jsonl", "trained_as": "ppo"}
    series = metric_series(run=run)
    assert set(series) == {"policy/clipfrac_avg", "objective/scores", "my/own"}
    assert series["my/own"] == [(s, float(s)) for s in range(1, 61)]
    page = client.get(
        reverse("monitoring:diagnosis", args=[project.slug, run.pk]), HTTP_HX_REQUEST="true"
    )
    assert page.context["view"].sentence.startswith("The policy update broke first, at step 3")
    assert page.context["checks"].ordered == []
    assert "An imported run has figures only" in page.content.decode()
    assert AuditEvent.objects.filter(action="run.imported", subject=run.pk).exists()


def test_the_pages_of_an_imported_run_open(emil: User, project: Project, signed_in: SignIn) -> None:
    run = run_import(
        project=project,
        user=emil,
        file_name="out.tfevents",
        data=EVENTS.read_bytes(),
        trained_as="ppo",
        name="From TensorBoard",
    )
    client = signed_in(emil)
    for tab in ("overview", "charts", "config", "alerts", "lineage"):
        page = client.get(reverse("training:run", args=[project.slug, run.pk]), {"tab": tab})
        assert page.status_code == 200, tab
    figures = client.get(reverse("training:run_metrics", args=[project.slug, run.pk])).json()
    assert "objective/kl" in figures["series"]
    assert client.get(reverse("training:runs", args=[project.slug])).status_code == 200
    assert run.summary["format"] == "TensorBoard"


def test_a_wrong_row_is_named_and_nothing_is_stored(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    data = verl(5) + b'\nnonsense\n{"step": 1.5, "a": 2}'
    page = upload(signed_in(emil), project, "verl.jsonl", data)
    assert page.status_code == 422
    text = page.content.decode()
    assert "Nothing was imported" in text
    assert "no JSON" in text
    assert [one["row"] for one in page.context["rows"]] == [6, 7]
    assert not Run.objects.exists()
    assert not MetricBlock.objects.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"step": 1, "a": ' + b"9" * 5000 + b"}",
        b'[{"step": 1, "a": ' + b"9" * 5000 + b"}]",
        b"step," + b"c," * 20_000 + b"\n1,2",
    ],
    ids=["deep list", "deep object", "digits in a line", "digits in a list", "columns"],
)
def test_a_hostile_file_is_refused_at_the_field(
    emil: User, project: Project, signed_in: SignIn, data: bytes
) -> None:
    page = upload(signed_in(emil), project, "x.json", data)
    assert page.status_code == 422
    assert page.context["form"].errors["file"]
    assert not Run.objects.exists()


def test_a_file_that_breaks_its_reader_is_refused(
    emil: User, project: Project, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_CURVES", "tests.common.misbehaving:crashes_over")
    page = upload(signed_in(emil), project, "x.json", verl())
    assert page.status_code == 422
    assert page.context["form"].errors["file"]


def test_one_wrong_thing_is_said_at_the_field(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    page = upload(signed_in(emil), project, "x.csv", b"a,b\n1,2\n")
    assert page.status_code == 422
    assert "No column holds the step" in page.context["form"].errors["file"][0]


def test_the_same_file_is_here_once_and_may_be_read_as_another_kind(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    upload(client, project, "verl.jsonl", verl())
    again = upload(client, project, "other-name.jsonl", verl())
    assert again.status_code == 422
    run = Run.objects.get()
    assert "is here already, as verl" in again.content.decode()
    assert reverse("training:run", args=[project.slug, run.pk]) in again.content.decode()
    upload(client, project, "verl.jsonl", verl(), trained_as="grpo")
    assert Run.objects.count() == 2


def test_an_empty_form_and_an_unknown_kind_are_refused(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    url = reverse("monitoring:run_import", args=[project.slug])
    assert client.post(url, {}).status_code == 422
    assert upload(client, project, "x.jsonl", verl(), trained_as="magic").status_code == 422
    assert not Run.objects.exists()


def test_names_and_texts_that_the_database_refuses_are_made_fit(
    emil: User, project: Project
) -> None:
    rows = json.dumps([{"step": 1, "a\u0000b": 1.0, "c": 2.0}]).encode()
    run = run_import(
        project=project, user=emil, file_name="h.json", data=rows, trained_as="ppo", name="x"
    )
    assert set(metric_series(run=run)) == {"a\ufffdb", "c"}


@pytest.mark.parametrize("name", ["ana", "rita"])
def test_only_staff_imports(
    name: str, project: Project, signed_in: SignIn, request: pytest.FixtureRequest
) -> None:
    person = request.getfixturevalue(name)
    assert upload(signed_in(person), project, "x.jsonl", verl()).status_code == 403
    assert not Run.objects.exists()
