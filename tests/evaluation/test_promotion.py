"""A policy is promoted when one person asks, the evidence holds and another person approves."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Notice, Project, Role, User
from apps.common.errors import Conflict, DomainError, Refused
from apps.evaluation.models import (
    AuditSheet,
    HeadToHead,
    PromotionRequest,
    ProtocolUse,
    StageChange,
)
from apps.evaluation.selectors.evidence import PROVIDERS, Verdict, gate_kept, gate_of
from apps.evaluation.selectors.head_to_head import people_rates
from apps.evaluation.selectors.models import state_sha256
from apps.evaluation.selectors.promotion import stage_now, state_of
from apps.evaluation.services.promoting import promotion_reject, promotion_withdraw
from apps.monitoring.models import Incident
from apps.snapshots.models import Snapshot
from apps.snapshots.screens.readiness import method_rows
from apps.training.models import Alert, Checkpoint, Run, RunInput
from apps.training.selectors.results import run_results
from measures.model_ranking import LEAST_PEOPLE
from tests.evaluation.promoted import (
    Ask,
    approve,
    ask,
    audited,
    bea,
    compared_by_people,
    critical_incident,
    evaluation_lost,
    evaluation_made,
    lower_end_under_half,
    model,
    saved,
    serve,
    sign,
    suite_made,
)
from tests.people import person_make

__all__ = ["ask", "bea", "model", "serve"]  # fixtures


# --- the evidence and the gate ---


def _no_judge(model: Checkpoint) -> None:
    evaluation_made(model, judged=False)


def _reward_not_approved(model: Checkpoint) -> None:
    reward = model.run.inputs.get(role="reward").checkpoint
    Checkpoint.objects.filter(pk=reward.pk).update(status="candidate")


def _critical_alert(model: Checkpoint) -> None:
    Alert.objects.create(
        run=model.run,
        attempt=1,
        seq=1,
        step=3,
        rule="non_finite",
        severity="critical",
        message="NaN",
        raised_at=timezone.now(),
    )


def _preflight_blocked(model: Checkpoint) -> None:
    Run.objects.filter(pk=model.run_id).update(
        summary={"preflight": {"level": "block", "checks": {"memory": "block"}}}
    )


def _preflight_unknown(model: Checkpoint) -> None:
    Run.objects.filter(pk=model.run_id).update(
        summary={"preflight": {"level": "unknown", "checks": {"reward": "unknown"}}}
    )


def _two_seeds(model: Checkpoint) -> None:
    Run.objects.filter(group=model.run.group, seed=2).update(
        state="failed", failure_kind="bad_data"
    )


def _another_configuration(model: Checkpoint) -> None:
    Run.objects.filter(group=model.run.group, seed=2).update(config={"steps": 7})


def _dataset_not_frozen(model: Checkpoint) -> None:
    loose = Snapshot.objects.create(project=model.project, name="loose", kind="preferences")
    RunInput.objects.create(run=model.run, role="canaries", snapshot=loose)


def _unknown_code(model: Checkpoint) -> None:
    Run.objects.filter(pk=model.run_id).update(code_version="")


def _suite_regressed(model: Checkpoint) -> None:
    suite_made(model, "worse", ["arithmetic"])


def _suite_too_small(model: Checkpoint) -> None:
    suite_made(model, "undecided")


def _people_prefer_the_other(model: Checkpoint) -> None:
    compared_by_people(model, 0.0)


def _people_were_not_asked(model: Checkpoint) -> None:
    HeadToHead.objects.all().delete()


def _a_bad_answer_in_sixty(model: Checkpoint) -> None:
    audited(model, bad=1)


def _few_answers_judged(model: Checkpoint) -> None:
    audited(model, n=20)


def _no_sheet(model: Checkpoint) -> None:
    AuditSheet.objects.update(state="withdrawn", reason="another model")


def _no_protocol(model: Checkpoint) -> None:
    ProtocolUse.objects.all().delete()


@pytest.mark.parametrize(
    ("plant", "line", "verdict"),
    [
        (evaluation_lost, "evaluation", "missing"),
        (_no_judge, "evaluation", "missing"),
        (lower_end_under_half, "evaluation", "red"),
        (_reward_not_approved, "reward_model", "red"),
        (_critical_alert, "alerts", "red"),
        (critical_incident, "alerts", "red"),
        (_preflight_blocked, "preflight", "red"),
        (_preflight_unknown, "preflight", "missing"),
        (_two_seeds, "seeds", "missing"),
        (_another_configuration, "seeds", "missing"),
        (_dataset_not_frozen, "lineage", "red"),
        (_unknown_code, "lineage", "red"),
        (_suite_regressed, "regression", "red"),
        (_suite_too_small, "regression", "missing"),
        (_people_prefer_the_other, "head_to_head", "red"),
        (_people_were_not_asked, "head_to_head", "missing"),
        (_a_bad_answer_in_sixty, "audit", "red"),
        (_few_answers_judged, "audit", "missing"),
        (_no_sheet, "audit", "missing"),
        (_no_protocol, "protocol", "missing"),
    ],
)
def test_a_planted_fault_closes_the_gate_by_its_own_line(
    model: Checkpoint, plant: Callable[[Checkpoint], None], line: str, verdict: str
) -> None:
    assert gate_of(model, "production").is_open
    plant(model)
    gate = gate_of(Checkpoint.objects.get(pk=model.pk), "production")
    blocking = {one.name: one.verdict for one in gate.blocking}
    assert blocking.pop(line) == verdict
    assert set(blocking) <= {"protocol"}  # an evaluation that is gone took its protocol along
    assert not gate.is_open


def test_an_acknowledged_alert_and_a_resolved_incident_are_not_open(
    model: Checkpoint, ada: User
) -> None:
    _critical_alert(model)
    critical_incident(model)
    now = timezone.now()
    Alert.objects.update(acknowledged_at=now, acknowledged_by=ada)
    Incident.objects.update(state="resolved", resolved_at=now)
    assert gate_of(model, "candidate").is_open


def test_the_newest_evaluation_of_this_very_checkpoint_counts(model: Checkpoint) -> None:
    other = saved(model.run, 200, tags=["best"])
    evaluation_made(other, 0.2)
    assert gate_of(model, "production").is_open
    line = next(one for one in gate_of(other, "production").lines if one.name == "evaluation")
    assert line.verdict == Verdict.RED
    assert line.facts["value"] == 0.2
    assert line.facts["sha256"] == "e" * 64


def test_a_candidate_needs_less_and_an_unrequired_line_blocks_nothing(model: Checkpoint) -> None:
    evaluation_lost(model)
    gate = gate_of(model, "candidate")
    verdicts = {one.name: one.verdict for one in gate.lines}
    assert verdicts["evaluation"] == verdicts["size_latency"] == Verdict.MISSING
    assert gate.is_open
    assert set(verdicts) == set(PROVIDERS)


def test_what_is_frozen_with_a_request_stays_as_it_was(ask: Ask, model: Checkpoint) -> None:
    request = ask()
    lower_end_under_half(model)
    request = PromotionRequest.objects.get(pk=request.pk)
    assert request.is_open
    assert gate_kept(request.evidence).is_open
    assert state_sha256(request.evidence) == request.evidence_sha256
    assert not gate_of(model, "production").is_open


def test_evidence_that_another_version_kept_can_be_read(ask: Ask) -> None:
    state = ask().evidence
    state["evidence"][0]["added_later"] = 1
    gate = gate_kept(state)
    assert gate.is_open
    assert gate.lines[0].name == "evaluation"


# --- asking ---


def test_a_request_tells_the_admins_and_the_audit_log(
    ask: Ask, ada: User, signed_in: Callable[[User], Client]
) -> None:
    request = ask(reason="better answers")
    notice = Notice.objects.get(kind="promotion.requested")
    assert notice.roles == [Role.ADMIN]
    client = signed_in(ada)
    assert client.get(notice.path).status_code == 200
    event = AuditEvent.objects.get(action="promotion.requested")
    assert (event.subject, event.details["stage"]) == (request.pk, "production")
    page = client.get("/p/arguments/service/").content.decode()
    assert notice.path in page
    assert "request for a promotion waits" in client.get("/p/arguments/overview/").content.decode()


def test_a_reward_model_a_failed_one_and_one_without_files_are_refused(
    ask: Ask, model: Checkpoint, project: Project
) -> None:
    reward = model.run.inputs.get(role="reward").checkpoint
    with pytest.raises(DomainError) as raised:
        ask(reward)
    assert (raised.value.status, raised.value.field) == (404, "checkpoint")
    failed = saved(model.run, 90, tags=["failed"])
    gone = saved(model.run, 80, files_removed_at=timezone.now(), tags=["best"])
    retired = saved(model.run, 70, status="retired")
    for one, code in (
        (failed, "failed_model"),
        (gone, "files_removed"),
        (retired, "checkpoint_retired"),
    ):
        with pytest.raises(Conflict) as refused:
            ask(one)
        assert (refused.value.code, refused.value.field) == (code, "checkpoint")
    assert not PromotionRequest.objects.exists()


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"stage": "everywhere"}, "stage"),
        ({"share": 101}, "share"),
        ({"share": 10, "stage": "staging"}, "share"),
        ({"reason": "x" * 1001}, "reason"),
    ],
)
def test_a_request_that_does_not_fit_names_the_field(
    ask: Ask, sent: dict[str, Any], field: str
) -> None:
    with pytest.raises(DomainError) as raised:
        ask(**sent)
    assert raised.value.field == field


def test_the_same_is_not_asked_twice(ask: Ask, model: Checkpoint, serve: Any) -> None:
    ask(stage="staging")
    with pytest.raises(Conflict, match="has asked for the same") as raised:
        ask(stage="staging")
    assert raised.value.code == "waits_already"
    serve(model)
    with pytest.raises(Conflict) as again:
        ask()
    assert again.value.code == "named_already"


# --- two people ---


def test_who_asked_cannot_approve_by_page_by_api_or_by_the_service(
    ask: Ask, ada: User, bea: User, signed_in: Callable[[User], Client]
) -> None:
    request = ask(user=ada)
    with pytest.raises(Refused) as raised:
        approve(request, ada)
    assert raised.value.code == "own_request"
    client = signed_in(ada)
    page = f"/p/arguments/promotions/{request.pk}/"
    shown = client.get(page).content.decode()
    assert 'value="approve"' not in shown
    assert 'value="withdraw"' in shown
    sent = client.post(f"{page}decide/", {"decision": "approve", "change": "0"})
    assert sent.status_code == 403
    assert "somebody else must decide" in sent.content.decode()
    api = f"/api/v1/projects/arguments/promotions/{request.pk}/decision"
    told = client.post(api, {"decision": "approve"}, content_type="application/json")
    assert (told.status_code, told.json()["code"]) == (403, "own_request")
    assert state_of(request) == "waiting"
    assert not StageChange.objects.exists()
    answered = signed_in(bea).post(api, {"decision": "approve"}, content_type="application/json")
    assert (answered.status_code, answered.json()["state"]) == (200, "approved")
    assert answered.json()["decided_by"] == "Bea"


def _decide_by_sql(request: PromotionRequest, **fields: Any) -> None:
    values = {
        "request_id": request.pk,
        "requested_by_id": request.requested_by_id,
        "is_open": request.is_open,
        "kind": "approved",
        "decided_by_id": request.requested_by_id,
        "decided_name": "somebody",
        "decided_role": "admin",
        "seconded_by_id": None,
        "seconded_name": "",
        "seconded_role": "",
        "reason": "because",
        "at": timezone.now(),
    } | fields
    names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"insert into evaluation_promotiondecision ({names}) values ({marks})",
            list(values.values()),
        )


def test_the_database_itself_refuses_an_approval_by_who_asked(
    ask: Ask, ada: User, bea: User, model: Checkpoint
) -> None:
    request = ask(user=ada)
    with pytest.raises(IntegrityError, match="promotion_approver_is_not_requester"):
        _decide_by_sql(request)
    with pytest.raises(IntegrityError, match="promotion_decision_of_request"):
        _decide_by_sql(request, requested_by_id=bea.pk)
    with pytest.raises(IntegrityError, match="promotion_approved_by_admin_through_open_gate"):
        _decide_by_sql(request, decided_by_id=bea.pk, decided_role="engineer")
    with (
        pytest.raises(IntegrityError, match="a stage names what was approved"),
        transaction.atomic(),
    ):
        StageChange.objects.create(
            project=request.project,
            stage="production",
            number=1,
            checkpoint=model,
            cause="promotion",
            request=request,
            by=bea,
            by_name="Bea",
        )
    _decide_by_sql(request, decided_by_id=bea.pk)


def test_only_an_admin_approves_and_rejects(
    ask: Ask, rita: User, bea: User, project: Project, signed_in: Callable[[User], Client]
) -> None:
    request = ask(user=bea)
    engineer = person_make("Eve", project, Role.ENGINEER)
    for person in (rita, engineer):
        with pytest.raises(Refused):
            approve(request, person)
        with pytest.raises(Refused):
            promotion_reject(project=project, request_id=request.pk, user=person, reason="no")
        page = signed_in(person).get(f"/p/arguments/promotions/{request.pk}/")
        assert page.status_code == 200
        assert b'value="approve"' not in page.content


def test_a_rejection_has_a_reason_and_tells_who_asked(ask: Ask, ada: User, emil: User) -> None:
    request = ask()
    with pytest.raises(DomainError) as raised:
        promotion_reject(project=request.project, request_id=request.pk, user=ada, reason=" ")
    assert raised.value.field == "reason"
    promotion_reject(project=request.project, request_id=request.pk, user=ada, reason="too slow")
    assert state_of(request) == "rejected"
    assert Notice.objects.get(kind="promotion.rejected").user == emil
    with pytest.raises(Conflict, match="rejected by Ada") as late:
        approve(request, ada)
    assert late.value.code == "decided_already"


def test_who_asked_withdraws_and_nobody_else(ask: Ask, ada: User, emil: User) -> None:
    request = ask()
    with pytest.raises(Refused):
        promotion_withdraw(project=request.project, request_id=request.pk, user=ada)
    promotion_withdraw(project=request.project, request_id=request.pk, user=emil)
    assert state_of(request) == "withdrawn"


# --- a closed gate ---


def test_red_evidence_closes_the_gate_for_page_api_and_service(
    ask: Ask, ada: User, model: Checkpoint, signed_in: Callable[[User], Client]
) -> None:
    lower_end_under_half(model)
    request = ask()
    assert not request.is_open
    label = "Win rate against the baseline, by the judge (red)"
    with pytest.raises(Conflict) as raised:
        approve(request, ada)
    assert raised.value.code == "gate_closed"
    assert label in raised.value.message
    client = signed_in(ada)
    page = f"/p/arguments/promotions/{request.pk}/"
    assert 'value="approve"' not in client.get(page).content.decode()
    sent = client.post(f"{page}decide/", {"decision": "approve", "change": "0"})
    assert (sent.status_code, label in sent.content.decode()) == (409, True)
    api = f"/api/v1/projects/arguments/promotions/{request.pk}/decision"
    told = client.post(api, {"decision": "approve"}, content_type="application/json").json()
    assert (told["code"], label in told["message"]) == ("gate_closed", True)
    with pytest.raises(IntegrityError, match="promotion_approved_by_admin_through_open_gate"):
        _decide_by_sql(request, decided_by_id=ada.pk)
    assert not StageChange.objects.exists()


def test_evidence_that_turned_red_since_it_was_asked_closes_it_too(
    ask: Ask, ada: User, model: Checkpoint, signed_in: Callable[[User], Client]
) -> None:
    request = ask()
    critical_incident(model)
    with pytest.raises(Conflict, match="Other weights answer") as raised:
        approve(request, ada)
    assert raised.value.code == "evidence_changed"
    page = signed_in(ada).get(f"/p/arguments/promotions/{request.pk}/").content.decode()
    assert "does not hold now" in page
    assert 'value="approve"' not in page


def test_an_override_by_one_person_is_refused_and_by_two_others_works(
    ask: Ask, emil: User, rita: User, ada: User, model: Checkpoint
) -> None:
    lower_end_under_half(model)
    request = ask()
    with pytest.raises(DomainError) as unexplained:
        sign(request, rita, "")
    assert unexplained.value.field == "reason"
    assert sign(request, rita) is None
    with pytest.raises(Conflict) as again:
        sign(request, rita)
    assert again.value.code == "signed_already"
    assert state_of(request) == "waiting"
    assert stage_now(project=request.project, stage="production") is None
    with pytest.raises(Refused):
        sign(request, emil)
    decision = sign(request, ada, "the outage costs more")
    assert (decision.kind, decision.seconded_by, decision.decided_by) == ("overridden", rita, ada)
    named = stage_now(project=request.project, stage="production")
    assert (named.checkpoint, named.cause, named.reason) == (
        model,
        "override",
        "the outage costs more",
    )


def test_an_override_needs_an_admin_and_never_who_asked(
    ask: Ask, ada: User, bea: User, rita: User, project: Project, model: Checkpoint
) -> None:
    evaluation_lost(model)
    request = ask(user=ada)
    with pytest.raises(Refused):
        sign(request, ada)
    assert sign(request, rita) is None
    second = person_make("Rob", project, Role.REVIEWER)
    assert sign(request, second) is None
    assert state_of(request) == "waiting", "two reviewers are not enough"
    assert sign(request, bea).kind == "overridden"


def test_the_database_refuses_an_override_that_two_others_have_not_signed(
    ask: Ask, ada: User, rita: User, emil: User, model: Checkpoint
) -> None:
    evaluation_lost(model)
    request = ask()
    wrong = {"kind": "overridden", "decided_by_id": ada.pk}
    for seconded in (None, ada.pk, emil.pk, rita.pk):
        with pytest.raises(IntegrityError, match="signatures of two people"):
            _decide_by_sql(request, **wrong, seconded_by_id=seconded, seconded_role="reviewer")
    given = {"requested_by": emil, "by_name": "x", "role": "reviewer", "reason": "y"}
    for fault, name in (
        ({"by": emil}, "override_signer_is_not_requester"),
        ({"by": rita, "role": "engineer"}, "override_signer_judges"),
        ({"by": rita, "reason": ""}, "override_signature_says_why"),
        ({"by": rita, "is_open": True}, "override_of_a_closed_gate"),
    ):
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            request.signatures.create(**given | fault)
    rob = person_make("Rob", request.project, Role.REVIEWER)
    for reviewer in (rita, rob):
        assert sign(request, reviewer) is None
    with pytest.raises(IntegrityError, match="override_signed_once_each"), transaction.atomic():
        request.signatures.create(by=rita, **given)
    signed = {"kind": "overridden", "decided_by_id": rita.pk, "decided_role": "reviewer"}
    for second, role, reason in ((rob, "reviewer", "both"), (rob, "admin", "")):
        with pytest.raises(IntegrityError, match="promotion_overridden_by_two_others"):
            _decide_by_sql(
                request,
                **signed,
                seconded_by_id=second.pk,
                seconded_role=role,
                reason=reason,
            )


def test_an_open_gate_is_not_overridden(ask: Ask, ada: User) -> None:
    with pytest.raises(Conflict) as raised:
        sign(ask(), ada)
    assert raised.value.code == "gate_open"


def test_the_table_of_methods_says_what_people_and_checks_said(model: Checkpoint) -> None:
    rows = {row.name: row for row in method_rows(run_results(model.project))}
    mine, other = rows["assistant, seed 0"], rows["assistant, seed 1"]
    assert mine.people.startswith("100.0 % (73.5–100.0 %")
    assert mine.win_rate.startswith("62.0 %")  # not the 20 % of the suite
    assert mine.checks == "not worse: 1 of 140 lost, 2 won"
    assert mine.latency == "210 ms"
    assert (other.people, other.win_rate) == ("not asked", "not evaluated")
    assert (other.checks, other.latency) == ("no suite", "—")


def test_too_few_people_are_said_with_the_number_that_would_do(model: Checkpoint) -> None:
    compared_by_people(model, people=3)
    (rate,) = people_rates(model.project)[model.run_id]
    assert (rate.people, rate.verdict, rate.is_enough) == (3, "too_few_people", False)
    assert rate.least == LEAST_PEOPLE
    rows = {row.name: row.people for row in method_rows(run_results(model.project))}
    said = rows["assistant, seed 0"]
    assert said == f"too few people; {LEAST_PEOPLE} would do (against Base, 3 people)"


def test_the_newest_head_to_head_with_each_opponent_is_kept_with_its_run(
    model: Checkpoint,
) -> None:
    other = Checkpoint.objects.exclude(run=model.run).earliest("pk")
    compared_by_people(model, 0.0, second=other)
    newest, first = people_rates(model.project)[model.run_id]
    assert (newest.opponent_run, newest.value) == (other.run_id, pytest.approx(0.0))
    assert (first.opponent_run, first.value) == ("", pytest.approx(1.0))
    assert newest.is_enough
