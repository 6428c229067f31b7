"""Every reading of a split is a row, and beyond a budget a second person signs."""

import json
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.snapshots.models import Snapshot, SplitAccess, SplitSignOff
from apps.snapshots.selectors.looks import looks_of, looks_of_run
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.looks import look_budget_set, look_sign, splits_read
from apps.training import services
from apps.training.models import Checkpoint, Run, RunInput
from measures.looks import look_alpha
from tests.training.reports import batch, report
from tests.training.test_launching import model
from tests.web.world import run_make
from workers.config import as_trained
from workers.contract import Finished, Opened, SplitRead

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("artifacts", "wire")]
REWARD = {"reward": {"type": "token_count", "token": "a"}}
API = "/api/v1/projects/arguments/snapshots"


@pytest.fixture
def prompts(project: Project) -> Snapshot:
    rows = [{"prompt": f"Why {n}?", "split": "train"} for n in range(3)]
    rows += [{"prompt": f"How {n}?", "split": "test"} for n in range(4)]
    return snapshot_import(project=project, kind="prompts", name="Asked", rows=rows)


@pytest.fixture
def policies(project: Project) -> dict[str, Checkpoint]:
    return {"sft": model(project, "sft"), "policy": model(project, "dpo")}


def reading(project: Project, prompts: Snapshot, person: User | None, **more: Any) -> Run:
    """A live evaluation of these prompts."""
    run = run_make(project, by=person, kind="evaluate", started_at=None, **more)
    RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
    return run


def looked(project: Project, prompts: Snapshot, person: User | None, times: int) -> list[Run]:
    """Evaluations that read the public test and ended."""
    runs = []
    for _ in range(times):
        run = reading(project, prompts, person)
        report(run, Opened(), SplitRead("prompts", "public_test", 4), Finished(step=1))
        runs.append(run)
    return runs


def limited(prompts: Snapshot, by: User, looks: int | None = 5) -> None:
    look_budget_set(snapshot=prompts, split="public_test", looks=looks, by=by)


def split(prompts: Snapshot) -> Any:
    return next(one for one in looks_of(prompts) if one.split == "public_test")


# --- rows ---


def test_what_a_run_read_is_a_row_once_however_often_it_is_told(
    project: Project, prompts: Snapshot, emil: User
) -> None:
    run = reading(project, prompts, emil)
    events = Opened(), SplitRead("prompts", "train", 3), SplitRead("prompts", "public_test", 4)
    report(run, *events)
    again = services.events_apply(batch=batch(run, *events))
    assert again.skipped == 3
    rows = SplitAccess.objects.filter(run=run.pk).order_by("seq")
    assert [(row.split, row.n_items, row.seq, row.purpose) for row in rows] == [
        ("train", 3, 2, "evaluate"),
        ("public_test", 4, 3, "evaluate"),
    ]
    assert {row.person for row in rows} == {emil}
    assert {row.snapshot for row in rows} == {prompts}


def test_the_same_event_cannot_be_two_rows(project: Project, prompts: Snapshot) -> None:
    (run,) = looked(project, prompts, None, 1)
    row = SplitAccess.objects.get(run=run.pk)
    row.pk = None
    with pytest.raises(IntegrityError, match="once_per_event"), transaction.atomic():
        row.save(force_insert=True)


def test_a_row_is_never_changed_or_deleted(project: Project, prompts: Snapshot, emil: User) -> None:
    splits_read(snapshot=prompts, splits=["public_test"], purpose="export", person=emil)
    row = SplitAccess.objects.get()
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        SplitAccess.objects.filter(pk=row.pk).update(n_items=0)
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        row.delete()


def test_an_event_about_no_input_of_the_run_breaks_the_contract(
    project: Project, prompts: Snapshot
) -> None:
    run = reading(project, prompts, None)
    report(run, Opened(), SplitRead("data", "public_test", 4))
    assert (run.state, run.failure_kind) == ("failed", "contract_violation")
    assert not SplitAccess.objects.exists()


def test_attempts_of_one_run_are_one_look_and_other_runs_are_others(
    project: Project, prompts: Snapshot, emil: User
) -> None:
    first, second = looked(project, prompts, emil, 2)
    splits_read(snapshot=prompts, splits=["train", "public_test"], purpose="export", person=emil)
    assert split(prompts).used == 3
    (look,) = looks_of_run(second.pk)
    assert (look.look, look.budget, look.items) == (2, None, 4)
    assert look.alpha == pytest.approx(look_alpha(2))
    assert looks_of_run(first.pk)[0].look == 1


# --- budgets ---


def launch(client: Client, prompts: Snapshot, policies: dict[str, Checkpoint]) -> Any:
    body = {
        "kind": "evaluate",
        "name": "one more",
        "config": as_trained("evaluate", REWARD),
        "inputs": {"prompts": f"snapshot:{prompts.pk}"}
        | {role: f"checkpoint:{one.pk}" for role, one in policies.items()},
    }
    return client.post("/api/v1/projects/arguments/runs", body, content_type="application/json")


def test_the_sixth_look_at_a_test_split_needs_a_second_person_by_api(
    project: Project,
    prompts: Snapshot,
    policies: dict[str, Checkpoint],
    emil: User,
    ada: User,
    signed_in,
) -> None:
    limited(prompts, ada)
    looked(project, prompts, emil, 5)
    client = signed_in(emil)
    refused = launch(client, prompts, policies)
    assert refused.status_code == 409
    assert refused.json()["code"] == "look_needs_second_person"
    assert refused.json()["field"] == "inputs.prompts"
    assert not Run.objects.filter(name="one more").exists()

    sign = {"split": "public_test", "look": 6, "person": "emil", "reason": "The last release."}
    own = client.post(f"{API}/{prompts.pk}/looks/sign", sign, content_type="application/json")
    assert own.json()["code"] == "same_person"
    assert launch(client, prompts, policies).status_code == 409
    others = signed_in(ada)
    signed = others.post(f"{API}/{prompts.pk}/looks/sign", sign, content_type="application/json")
    assert signed.status_code == 201
    assert launch(client, prompts, policies).status_code == 201
    assert launch(client, prompts, policies).status_code == 409, "the seventh needs one of its own"


def test_the_form_marks_the_input_and_says_what_to_do(
    project: Project,
    prompts: Snapshot,
    policies: dict[str, Checkpoint],
    emil: User,
    ada: User,
    signed_in,
) -> None:
    limited(prompts, ada, looks=1)
    looked(project, prompts, emil, 1)
    client = signed_in(emil)
    address = "/p/arguments/runs/new/evaluate/"
    sent = {
        bound.html_name: str(bound.value())
        for bound in client.get(address).context["form"]
        if bound.value() is not None and bound.value() is not False
    }
    sent |= {f"input_{role}": f"checkpoint:{one.pk}" for role, one in policies.items()}
    sent |= {
        "input_prompts": f"snapshot:{prompts.pk}",
        "pasted": json.dumps(as_trained("evaluate", REWARD)),
    }
    page = client.post(address, sent)
    assert page.status_code == 422
    (said,) = page.context["form"].errors["input_prompts"]
    assert "look 2 at public_test" in said
    assert not Run.objects.filter(kind="evaluate", state="queued").exists()


def test_a_run_under_way_has_its_look_reserved(
    project: Project,
    prompts: Snapshot,
    policies: dict[str, Checkpoint],
    emil: User,
    ada: User,
    signed_in,
) -> None:
    limited(prompts, ada, looks=1)
    assert launch(signed_in(emil), prompts, policies).status_code == 201
    assert launch(signed_in(emil), prompts, policies).status_code == 409


def test_without_a_budget_nobody_is_asked(
    project: Project, prompts: Snapshot, policies: dict[str, Checkpoint], emil: User, signed_in
) -> None:
    looked(project, prompts, emil, 7)
    assert split(prompts).budget is None
    assert launch(signed_in(emil), prompts, policies).status_code == 201


def test_who_signs_and_who_looks_differ_in_the_database_too(
    prompts: Snapshot, emil: User, ada: User
) -> None:
    row = {"snapshot": prompts, "split": "public_test", "look": 6}
    with pytest.raises(IntegrityError, match="by_another"), transaction.atomic():
        SplitSignOff.objects.create(**row, person=emil, signed_by=emil, reason="Mine")
    with pytest.raises(IntegrityError, match="says_why"), transaction.atomic():
        SplitSignOff.objects.create(**row, person=emil, signed_by=ada, reason="")


def test_a_signature_is_refused_where_it_would_mean_nothing(
    project: Project, prompts: Snapshot, emil: User, ada: User, ana: User
) -> None:
    about = {"snapshot": prompts, "split": "public_test", "look": 1, "by": ada, "reason": "Now"}
    for changes, code in (
        ({"person": ana}, "not_staff"),
        ({"person": None}, "not_staff"),
        ({"person": emil, "reason": " "}, "bad_reason"),
        ({"person": emil, "reason": "x" * 501}, "bad_reason"),
    ):
        with pytest.raises(DomainError) as refused:
            look_sign(**about | changes)
        assert refused.value.code == code
    with pytest.raises(Missing):
        look_sign(**about | {"person": emil, "split": "train"})
    look_sign(**about, person=emil)
    with pytest.raises(Conflict) as twice:
        look_sign(**about, person=emil)
    assert twice.value.code == "signed_already"
    looked(project, prompts, emil, 1)
    with pytest.raises(Conflict) as late:
        look_sign(**about | {"person": emil, "reason": "Again"})
    assert late.value.code == "look_taken"
    assert AuditEvent.objects.filter(action="snapshot.look_signed").count() == 1


def test_a_download_is_a_look_and_refused_beyond_the_budget(
    project: Project, prompts: Snapshot, emil: User, ada: User, signed_in
) -> None:
    limited(prompts, ada, looks=1)
    client = signed_in(emil)
    address = f"/p/arguments/datasets/{prompts.pk}/file/"
    train = client.get(address, {"split": "train", "format": "jsonl"})
    assert len(train.getvalue().splitlines()) == 3
    assert split(prompts).used == 0
    query = {"split": "public_test", "format": "jsonl"}
    assert len(client.get(address, query).getvalue().splitlines()) == 4
    row = SplitAccess.objects.get()
    assert (row.person, row.purpose, row.n_items, row.run) == (emil, "export", 4, "")
    assert client.get(address, query).status_code == 409
    refused = client.get(f"{API}/{prompts.pk}/export", query)
    assert refused.json()["code"] == "look_needs_second_person"
    assert split(prompts).used == 1
    zipped = client.get(address, {"format": "zip"})
    assert zipped.status_code == 409, "the folder holds that split too"


# --- pages and API ---


def test_the_page_shows_looks_and_has_the_admin_limit_and_somebody_else_sign(
    project: Project, prompts: Snapshot, emil: User, ada: User, rita: User, signed_in
) -> None:
    looked(project, prompts, emil, 2)
    base = f"/p/arguments/datasets/{prompts.pk}/looks/"
    admin, engineer = signed_in(ada), signed_in(emil)
    assert engineer.post(f"{base}limit/", {"split": "public_test", "looks": 2}).status_code == 403
    admin.post(f"{base}limit/", {"split": "public_test", "looks": "2"})
    assert (split(prompts).budget, split(prompts).needs_second_person) == (2, True)
    page = admin.get(base).content.decode()
    assert "Sign look 3 at public_test" in page
    assert "needs a second person" in page
    sign = {"split": "public_test", "look": 3, "person": emil.pk, "reason": "Before the release"}
    engineer.post(f"{base}sign/", sign)
    assert not SplitSignOff.objects.exists(), "not for oneself"
    admin.post(f"{base}sign/", sign)
    assert SplitSignOff.objects.get().person == emil
    assert "Before the release" in admin.get(base).content.decode()
    readers = signed_in(rita).get(base).content.decode()
    assert "Sign look" not in readers
    assert "/runs/" not in readers.partition("accesses-title")[2].partition("</table>")[0]
    admin.post(f"{base}limit/", {"split": "public_test", "looks": ""})
    assert split(prompts).budget is None
    assert f"{base}" in admin.get(f"/p/arguments/datasets/{prompts.pk}/").content.decode()


def test_the_api_tells_looks_and_readings(
    project: Project, prompts: Snapshot, emil: User, ada: User, signed_in
) -> None:
    (run,) = looked(project, prompts, emil, 1)
    client = signed_in(ada)
    address = f"{API}/{prompts.pk}/looks"
    told = client.get(address).json()
    (one,) = [row for row in told["splits"] if row["split"] == "public_test"]
    assert (one["looks"], one["budget"], one["next_look"]) == (1, None, 2)
    assert one["next_alpha"] == pytest.approx(look_alpha(2))
    (read,) = told["readings"]
    assert (read["run"], read["person"], read["items"]) == (run.pk, "emil", 4)
    body = {"split": "public_test", "looks": 1}
    limited_to = client.put(f"{address}/budget", body, content_type="application/json").json()
    assert limited_to[0]["needs_second_person"] is True
    assert client.get("/api/v1/projects/arguments/runs/" + run.pk).json()["looks"] == [
        {
            "snapshot": prompts.pk,
            "split": "public_test",
            "look": 1,
            "budget": 1,
            "alpha": pytest.approx(look_alpha(1)),
            "items": 4,
        }
    ]


def test_the_result_shows_which_look_it_was(
    project: Project, prompts: Snapshot, emil: User, ada: User, signed_in
) -> None:
    limited(prompts, ada)
    *_, third = looked(project, prompts, emil, 3)
    text = signed_in(emil).get(f"/p/arguments/runs/{third.pk}/").content.decode()
    assert "3 of 5" in text
    assert "α = 0.00338" in text
