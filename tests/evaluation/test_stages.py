"""What a stage names, on any day; that nothing is changed afterwards; and that servers are told."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services.projects import project_archive, project_delete
from apps.common.errors import Conflict, DomainError, Refused
from apps.evaluation.models import PromotionDecision, PromotionRequest, StageChange
from apps.evaluation.selectors.evidence import PROVIDERS
from apps.evaluation.selectors.promotion import namings_on, stage_now, state_of
from apps.evaluation.services import stages
from apps.evaluation.services.stages import stage_revert, stage_share
from apps.monitoring.models import Channel, Delivery, Watch
from apps.monitoring.services import channels, notifications
from apps.training.models import Checkpoint
from apps.training.selectors.intermediates import models_needed
from apps.training.services.housekeeping import uses_of
from tests.evaluation.promoted import (
    Ask,
    approve,
    ask,
    bea,
    evaluation_lost,
    lower_end_under_half,
    model,
    policy_made,
    run_made,
    saved,
    serve,
    sign,
)
from tests.monitoring.probed import Receiver, prompts_make, receiver

__all__ = ["ask", "bea", "model", "serve"]  # fixtures


# --- what a stage names ---


def test_revert_names_the_model_before_with_a_reason(
    project: Project,
    model: Checkpoint,
    serve: Callable[..., StageChange],
    ada: User,
    emil: User,
    signed_in: Callable[[User], Client],
) -> None:
    other = policy_made(project, "newer")
    serve(model)
    second = serve(other)
    client = signed_in(ada)
    address = "/p/arguments/service/production/change/"
    empty = client.post(address, {"action": "revert", "change": "2", "reason": ""})
    assert (empty.status_code, stage_now(project=project, stage="production")) == (400, second)
    sent = client.post(address, {"action": "revert", "change": "2", "reason": "rude answers"})
    assert sent.status_code == 302
    now = stage_now(project=project, stage="production")
    assert (now.checkpoint, now.cause, now.number, now.reason) == (
        model,
        "revert",
        3,
        "rude answers",
    )
    assert AuditEvent.objects.get(action="stage.reverted").details["before"] == other.pk
    late = client.post(address, {"action": "revert", "change": "2", "reason": "me too"})
    assert late.status_code == 409
    assert "Meanwhile Ada changed production" in late.content.decode()
    with pytest.raises(Conflict) as nothing:
        stage_revert(project=project, stage="production", change=3, user=ada, reason="again")
    assert nothing.value.code == "nothing_before", "it does not go back to what was reverted"
    assert "share of 0 % takes it out of traffic" in nothing.value.message
    with pytest.raises(Refused):
        stage_revert(project=project, stage="production", change=3, user=emil, reason="mine")


def test_a_canary_shares_the_traffic_with_what_carries_it(
    project: Project, model: Checkpoint, serve: Callable[..., StageChange], ada: User
) -> None:
    canary, another = policy_made(project, "canary"), policy_made(project, "another")
    assert serve(model).rest is None
    first = serve(canary, share=10)
    assert (first.share, first.rest) == (10, model)
    second = serve(another, share=20)
    assert (second.share, second.rest) == (20, model), "the rest is what carried it before"
    with pytest.raises(DomainError) as raised:
        stage_share(
            project=project, stage="production", change=3, share=140, user=ada, reason="all"
        )
    assert raised.value.field == "share"
    full = stage_share(
        project=project, stage="production", change=3, share=100, user=ada, reason="no complaints"
    )
    assert (full.checkpoint, full.share, full.rest) == (another, 100, None)
    back = stage_revert(project=project, stage="production", change=4, user=ada, reason="slow")
    assert (back.checkpoint, back.share, back.rest) == (canary, 10, model)


def test_an_approval_of_a_stage_that_has_moved_is_refused(
    project: Project, model: Checkpoint, ask: Ask, serve: Any, ada: User
) -> None:
    request = ask(policy_made(project, "newer"))
    serve(model)
    with pytest.raises(Conflict) as raised:
        approve(request, ada, seen=0)
    assert (raised.value.code, raised.value.field) == ("stage_changed", "change")
    assert state_of(request) == "waiting", "nothing is half done"
    approve(request, ada, seen=1)


@pytest.fixture
def history(
    project: Project,
    model: Checkpoint,
    serve: Callable[..., StageChange],
    ada: User,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Checkpoint]:
    """The first model from 1 November, the second from the 3rd at noon, reverted on the 5th."""
    newer = policy_made(project, "newer")

    def at(*when: int) -> None:
        moment = datetime(*when, tzinfo=UTC)
        monkeypatch.setattr(stages, "timezone", SimpleNamespace(now=lambda: moment))

    at(2026, 11, 1, 9)
    serve(model, reason="the first")
    at(2026, 11, 3, 12)
    serve(newer, reason="better in every line")
    at(2026, 11, 5, 18)
    stage_revert(project=project, stage="production", change=2, user=ada, reason="rude")
    return {"first": model, "newer": newer}


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2026-10-31", []),
        ("2026-11-01", ["first"]),
        ("2026-11-02", ["first"]),
        ("2026-11-03", ["newer", "first"]),
        ("2026-11-04", ["newer"]),
        ("2026-11-05", ["first", "newer"]),
        ("2027-02-01", ["first"]),
    ],
)
def test_the_history_says_what_was_in_production_on_a_day_and_why(
    project: Project,
    history: dict[str, Checkpoint],
    day: str,
    expected: list[str],
    rita: User,
    signed_in: Callable[[User], Client],
) -> None:
    keys = {model.pk: name for name, model in history.items()}
    found = namings_on(project=project, day=datetime.fromisoformat(day).date())
    assert [keys[one.change.checkpoint_id] for one in found] == expected
    client = signed_in(rita)
    told = client.get(f"/api/v1/projects/arguments/stages?on={day}").json()
    assert [keys[row["checkpoint"]] for row in told] == expected
    reasons = {"first": "the first", "newer": "better in every line"}
    page = client.get(f"/p/arguments/service/?on={day}").content.decode()
    table = page[page.index('id="history"') :]
    for row, name in zip(told, expected, strict=True):
        assert row["cause"] == "revert" or row["reason"] == reasons[name]
        assert row["reason"] in table
        assert row["request"] in table
        assert len(row["evidence_sha256"]) == 64


def test_a_day_that_is_none_is_refused_by_page_and_api(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    client = signed_in(ada)
    told = client.get("/api/v1/projects/arguments/stages?on=3.11.2026")
    assert (told.status_code, told.json()["field"]) == (400, "on")
    assert client.get("/p/arguments/service/?on=yesterday").status_code == 422


# --- nothing is changed afterwards ---


@pytest.mark.parametrize(
    "table", ["promotionrequest", "promotiondecision", "overridesignature", "stagechange"]
)
def test_rows_are_added_and_never_changed(
    project: Project, ask: Ask, model: Checkpoint, rita: User, ada: User, table: str
) -> None:
    evaluation_lost(model)
    request = ask()
    sign(request, rita)
    sign(request, ada)
    column = {"stagechange": "reason", "overridesignature": "reason"}.get(table, "requested_by_id")
    for statement in (
        f"update evaluation_{table} set {column} = {column}",
        f"delete from evaluation_{table}",
    ):
        with (
            pytest.raises(IntegrityError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)


def test_a_project_goes_with_its_history(
    project: Project, model: Checkpoint, serve: Any, ada: User
) -> None:
    serve(model)
    project_archive(project=project, by=ada)
    project_delete(project=project, typed=project.name, by=ada)
    assert not StageChange.objects.exists()
    assert not PromotionRequest.objects.exists()


def test_a_model_that_was_promoted_is_kept_with_its_run(ask: Ask, model: Checkpoint) -> None:
    assert model.pk not in models_needed(Checkpoint.objects.filter(pk=model.pk, tags=[]))
    ask()
    assert model.pk in models_needed(Checkpoint.objects.filter(pk=model.pk))
    assert any("were to be promoted" in words for words in uses_of(model.run))


# --- two at once ---


@pytest.mark.django_db(transaction=True)
def test_of_two_admins_at_once_one_decides_and_the_other_is_told(
    ask: Ask, ada: User, bea: User
) -> None:
    request = ask()

    def decide(user: User) -> str:
        try:
            approve(request, user)
        except Conflict as error:
            return f"{error.code}: {error.message}"
        finally:
            connection.close()
        return "decided"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(decide, (ada, bea)))
    assert said[1].startswith("decided_already: Meanwhile it was approved by") or (
        said == ["decided", said[1]] and said[1].startswith("stage_changed")
    )
    assert said.count("decided") == 1
    assert PromotionDecision.objects.count() == StageChange.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_requests_for_one_stage_at_once_one_is_named_and_the_other_waits(
    project: Project, model: Checkpoint, ask: Ask, ada: User, bea: User
) -> None:
    both = [ask(), ask(policy_made(project, "newer"))]

    def decide(given: tuple[PromotionRequest, User]) -> str:
        try:
            approve(*given)
        except Conflict as error:
            return str(error.code)
        finally:
            connection.close()
        return "decided"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(decide, zip(both, (ada, bea), strict=True)))
    assert said == ["decided", "stage_changed"]
    assert [row.number for row in StageChange.objects.all()] == [1]
    assert sorted(state_of(one) for one in both) == ["approved", "waiting"]


# --- servers are told ---


@pytest.fixture
def hears(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    with receiver() as kept:
        yield kept


def _heard(hears: Receiver, secret: str) -> list[dict[str, Any]]:
    """Every message in order, each with a signature that is right."""
    bodies = []
    for headers, raw in hears.got:
        signed = headers["x-concord-timestamp"].encode() + b"." + raw
        mac = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        assert headers["x-concord-signature"] == f"v1={mac}"
        bodies.append(json.loads(raw))
    return bodies


def test_a_server_is_told_what_a_stage_names_and_of_the_revert(
    project: Project,
    model: Checkpoint,
    serve: Callable[..., StageChange],
    ada: User,
    emil: User,
    hears: Receiver,
) -> None:
    hook = channels.channel_create(
        project=project, user=emil, kind="webhook", address=hears.url, tells=["stages"]
    )
    canary = policy_made(project, "canary")
    request = serve(model).request
    serve(canary, share=10, reason="a tenth first")
    stage_revert(project=project, stage="production", change=2, user=ada, reason="rude")
    assert notifications.deliveries_send() == 3
    first, second, third = _heard(hears, hook.secret)
    assert {body["event"] for body in (first, second, third)} == {"stage.changed"}
    assert (first["model"]["id"], first["model"]["sha256"]) == (model.pk, model.sha256)
    assert (first["stage"]["name"], first["stage"]["share"], first["before"]) == (
        "production",
        100,
        None,
    )
    assert first["request"]["id"] == request.pk
    assert first["request"]["evidence_sha256"] == request.evidence_sha256
    assert (second["model"]["id"], second["stage"]["share"]) == (canary.pk, 10)
    assert (second["rest"]["id"], second["before"]["id"]) == (model.pk, model.pk)
    assert (third["stage"]["cause"], third["stage"]["reason"]) == ("revert", "rude")
    assert (third["model"]["id"], third["before"]["id"]) == (model.pk, canary.pk)
    assert third["model"]["download"].endswith(f"/models/{model.pk}/download")
    assert [body["stage"]["change"] for body in (first, second, third)] == [1, 2, 3]


def test_a_channel_hears_what_it_was_made_for(
    project: Project, model: Checkpoint, serve: Any, emil: User
) -> None:
    made = {
        tells: Channel.objects.create(
            project=project, kind="webhook", address=f"https://example.org/{tells}", tells=[tells]
        )
        for tells in Channel.Tells.values
    }
    serve(model)
    heard = set(Delivery.objects.filter(event="stage.changed").values_list("channel", flat=True))
    assert heard == {made["stages"].pk}
    heard = set(
        Delivery.objects.filter(event="promotion.approved").values_list("channel", flat=True)
    )
    assert heard == {made["approvals"].pk}
    with pytest.raises(DomainError) as raised:
        channels.channel_update(
            project=project, channel_id=made["runs"].pk, user=emil, tells=["everything"]
        )
    assert raised.value.field == "tells"


def test_a_refused_promotion_tells_nobody(
    project: Project, model: Checkpoint, ask: Ask, ada: User
) -> None:
    Channel.objects.create(
        project=project,
        kind="webhook",
        address="https://example.org/",
        tells=["incidents", "stages"],
    )
    lower_end_under_half(model)
    with pytest.raises(Conflict):
        approve(ask(), ada)
    assert not Delivery.objects.exists()


def test_an_email_says_it_in_words(
    project: Project, model: Checkpoint, serve: Any, emil: User, mailoutbox: list[Any]
) -> None:
    channels.channel_create(
        project=project, user=emil, kind="email", address="ops@example.org", tells=["stages"]
    )
    serve(model, reason="better answers")
    assert notifications.deliveries_send() == 1
    (mail,) = mailoutbox
    assert mail.subject == f"[Arguments] Production: {model.run.name}, step 400"
    assert "Reason: better answers" in mail.body


# --- the watch ---


def _watched(project: Project, checkpoint: Checkpoint, name: str) -> Watch:
    return Watch.objects.create(
        project=project,
        kind="policy",
        name=name,
        checkpoint=checkpoint,
        prompts=prompts_make(project),
        next_at=timezone.now(),
    )


def test_a_watch_says_whether_it_asks_what_the_stage_names(
    project: Project, model: Checkpoint, serve: Any, emil: User, signed_in: Any
) -> None:
    other = policy_made(project, "older")
    same, stale = _watched(project, model, "mine"), _watched(project, other, "older")
    serve(model)
    client = signed_in(emil)
    page = client.get(f"/p/arguments/monitoring/watches/{same.pk}/").content.decode()
    assert "This is the model that" in page
    page = client.get(f"/p/arguments/monitoring/watches/{stale.pk}/").content.decode()
    assert "these probes ask another model" in page
    told = {
        row["name"]: row["stages"]
        for row in client.get("/api/v1/projects/arguments/watches").json()
    }
    assert told == {"mine": ["production"], "older": []}
    assert "mine" in client.get("/p/arguments/service/").content.decode()


def test_a_server_that_names_the_checkpoint_is_known_to_serve_it(
    project: Project, model: Checkpoint, serve: Any, emil: User, signed_in: Any
) -> None:
    served = run_made(
        project, "served", "our server", summary={"served_model": f"assistant-{model.pk}"}
    )
    watch = _watched(project, saved(served, 0), "the server")
    serve(model)
    page = signed_in(emil).get(f"/p/arguments/monitoring/watches/{watch.pk}/").content.decode()
    assert "This is the model that" in page


# --- pages ---


def test_an_engineer_asks_on_the_page_of_the_model(
    model: Checkpoint, emil: User, rita: User, signed_in: Callable[[User], Client]
) -> None:
    client = signed_in(emil)
    address = f"/p/arguments/models/{model.pk}/promote/"
    assert address in client.get(f"/p/arguments/models/{model.pk}/").content.decode()
    assert address in client.get(f"/p/arguments/runs/{model.run_id}/").content.decode()
    shown = client.get(f"{address}?stage=production").content.decode()
    assert "the gate for production is open" in shown
    sent = {"stage": "staging", "share": "40", "reason": "try it"}
    refused = client.post(address, sent)
    assert refused.status_code == 422
    assert "Only production has traffic" in refused.content.decode()
    assert client.post(address, sent | {"share": "100"}).status_code == 302
    again = client.post(address, sent | {"share": "100"})
    assert (again.status_code, "has asked for the same" in again.content.decode()) == (409, True)
    request = PromotionRequest.objects.get()
    assert (request.stage, request.reason) == ("staging", "try it")
    read = signed_in(rita).get(f"/p/arguments/promotions/{request.pk}/").content.decode()
    assert request.evidence_sha256[:16] in read
    assert f"/models/{model.pk}/" not in read, "a page that a reviewer cannot open"


def test_the_api_does_all_of_it(
    project: Project, model: Checkpoint, emil: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    engineer, admin = signed_in(emil), signed_in(ada)
    api = "/api/v1/projects/arguments"
    gate = engineer.get(f"{api}/models/{model.pk}/evidence?stage=staging").json()
    assert gate["open"]
    assert {row["name"] for row in gate["evidence"]} == set(PROVIDERS)
    body = {"checkpoint": model.pk, "stage": "production", "share": 30, "reason": "a canary"}
    asked = engineer.post(f"{api}/promotions", body, content_type="application/json")
    assert asked.status_code == 201
    key = asked.json()["id"]
    assert asked.json()["gate"]["open"]
    assert admin.get(f"{api}/promotions?state=waiting").json()["count"] == 1
    decided = admin.post(
        f"{api}/promotions/{key}/decision",
        {"decision": "approve", "change": 0},
        content_type="application/json",
    )
    assert decided.json()["state"] == "approved"
    (named,) = engineer.get(f"{api}/stages").json()
    assert (named["checkpoint"], named["share"], named["reason"]) == (model.pk, 30, "a canary")
    share = admin.post(
        f"{api}/stages/production/share",
        {"change": 1, "share": 100, "reason": "fine"},
        content_type="application/json",
    )
    assert share.json()["share"] == 100
    reverted = admin.post(
        f"{api}/stages/production/revert",
        {"change": 2, "reason": "no"},
        content_type="application/json",
    )
    assert (reverted.status_code, reverted.json()["code"]) == (409, "nothing_before")
    past = engineer.get(f"{api}/stages/history?stage=production").json()
    assert [row["change"] for row in past["items"]] == [2, 1]
    assert admin.get(f"{api}/promotions/{key}").json()["gate"]["evidence"][0]["facts"]["n"] == 512
    assert admin.get(f"{api}/promotions?state=lost").json()["field"] == "state"
