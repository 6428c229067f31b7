"""Alarms about people and data: planted problems open incidents by the next look, and steady
projects none."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.agreement.models import AnnotatorReport
from apps.common.errors import DomainError
from apps.evaluation.models import StageChange
from apps.evaluation.selectors import overdue
from apps.labeling.models import (
    Annotator,
    Comparison,
    Decision,
    Guideline,
    LabelingSettings,
    Slot,
    Vote,
)
from apps.monitoring.models import Channel, Delivery, Incident, ProjectLook
from apps.monitoring.selectors.people import project_rules
from apps.monitoring.services.channels import mute_create
from apps.monitoring.services.people import alarms_change, projects_look
from apps.monitoring.tasks import look_at_projects
from apps.snapshots.models import SnapshotRow
from apps.training.models import Checkpoint
from apps.training.selectors import behind
from tests.agreement.crowd import person, votes_write
from tests.evaluation.outputs import checkpoint_make, snapshot_make
from tests.evaluation.promoted import ask, model, serve

__all__ = ["ask", "model", "serve"]

BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)
STEADY, LOW = "11111000", "11000"  # unanimous or not: pairs of three votes agree in 0.75, 0.6


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the disks of the tests hold, whatever the machine's do."""
    used = {"artifact store": 0.4, "database": 0.3}
    monkeypatch.setattr(behind, "disks", lambda: used)
    return used


@pytest.fixture
def hook(project: Project) -> Channel:
    return Channel.objects.create(
        project=project, kind="webhook", address="https://example.org/hook", secret="s"
    )


def crowd(
    project: Project, pairs: Iterable[bool], *, first: int = 0, step: int = 1, **fields: Any
) -> None:
    """Three votes on each pair, all alike or one apart; a pair every `step` minutes."""
    people = [person(f"crowd-{k}") for k in range(3)]
    votes_write(
        project,
        [
            {
                "pair": number,
                "who": who,
                "choice": "b" if k == 2 and not is_unanimous else "a",
                "cast_at": BEGAN + timedelta(minutes=step * number),
            }
            | fields
            for number, is_unanimous in enumerate(pairs, start=first)
            for k, who in enumerate(people)
        ],
    )


def pattern(text: str, n: int) -> list[bool]:
    return [text[k % len(text)] == "1" for k in range(n)]


def raised(project: Project) -> dict[str, Incident]:
    return {one.rule: one for one in Incident.objects.filter(project=project)}


def figure(project: Project, rule: str) -> dict[str, Any]:
    return ProjectLook.objects.get(project=project).figures[rule]


def test_agreement_that_falls_within_300_votes_is_told_by_the_next_look(
    project: Project, hook: Channel
) -> None:
    crowd(project, pattern(STEADY, 200))
    look_at_projects()
    assert raised(project) == {}
    crowd(project, pattern(LOW, 100), first=200)
    assert look_at_projects() == 1
    incident = raised(project)["agreement_fell"]
    assert set(raised(project)) == {"agreement_fell"}
    assert incident.key == f"project:{project.pk}:agreement_fell"
    assert (incident.title, incident.link, incident.severity) == (
        "Agreement fell",
        "data",
        "warning",
    )
    assert "60.0 %" in incident.message
    assert "expected 75.0 %" in incident.message
    assert "since 2026-03-01" in incident.message
    entry = incident.entries.get(kind="alert")
    assert entry.body["value"] == pytest.approx(0.15)
    assert entry.body["threshold"] == 0.05
    delivery = Delivery.objects.get(channel=hook, incident=incident)
    assert (delivery.event, delivery.state) == ("opened", Delivery.State.PENDING)
    look_at_projects()
    assert incident.entries.filter(kind="alert").count() == 1


def test_steady_projects_raise_nothing_and_idle_ones_cost_little(
    project: Project, hook: Channel, django_assert_max_num_queries: Any
) -> None:
    for number in range(3):
        other = Project.objects.create(slug=f"steady-{number}", name="Steady")
        for part in range(4):
            crowd(other, pattern(STEADY, 80), first=80 * part)
            look_at_projects()
    assert Incident.objects.count() == 0
    Project.objects.exclude(pk=other.pk).update(archived_at=timezone.now())
    with django_assert_max_num_queries(20):
        projects_look()
    crowd(other, pattern(STEADY, 8), first=400)
    with django_assert_max_num_queries(40):
        projects_look()


def test_what_is_muted_is_recorded_and_told_to_nobody(
    project: Project, hook: Channel, emil: User
) -> None:
    mute_create(
        project=project,
        user=emil,
        until=timezone.now() + timedelta(hours=1),
        reason="known",
        rule="agreement_fell",
    )
    crowd(project, pattern(STEADY, 200) + pattern(LOW, 100))
    look_at_projects()
    entry = raised(project)["agreement_fell"].entries.get(kind="alert")
    assert entry.body["muted"]
    assert not Delivery.objects.exists()


def test_votes_under_new_guidelines_that_agree_less_are_told(project: Project) -> None:
    """Of the same days as the others, so that no window of time shows them."""
    old, new = (
        Guideline.objects.create(project=project, version=version, body="Read it.")
        for version in (1, 2)
    )
    crowd(project, pattern(STEADY, 300), guideline=old)
    crowd(project, pattern("11000000", 48), step=7, guideline=new)
    look_at_projects()
    assert set(raised(project)) == {"agreement_fell_guideline"}
    assert "version 2" in raised(project)["agreement_fell_guideline"].message


def test_a_batch_that_is_far_off_is_named(project: Project) -> None:
    crowd(project, pattern(STEADY, 240) + pattern("1000", 60) + pattern(STEADY, 240))
    pairs = sorted(Comparison.objects.values_list("pk", flat=True))
    for name, some in (("import-1", pairs[:240]), ("odd", pairs[240:300]), ("3", pairs[300:])):
        Comparison.objects.filter(pk__in=some).update(batch=name)
    Comparison.objects.update(n_votes=3)
    look_at_projects()
    assert set(raised(project)) == {"batch_off"}
    assert "“odd”" in raised(project)["batch_off"].message


def gold(project: Project, wrong: Iterable[bool], *, first: int) -> None:
    ana, ben = person("ana-gold"), person("ben-gold")
    rows = [
        {
            "pair": number,
            "who": ana if number % 2 else ben,
            "choice": "b" if is_wrong else "a",
            "cast_at": BEGAN + timedelta(minutes=number),
        }
        for number, is_wrong in enumerate(wrong, start=first)
    ]
    known = set(Slot.objects.values_list("pk", flat=True))
    votes_write(project, rows)
    Slot.objects.exclude(pk__in=known).update(kind=Slot.Kind.GOLD)
    Comparison.objects.filter(slots__kind=Slot.Kind.GOLD).update(gold="a", stratum="gold")


def test_gold_errors_that_rise_name_who_makes_them(project: Project) -> None:
    gold(project, pattern("0000000001", 120), first=0)
    look_at_projects()
    assert raised(project) == {}
    gold(project, pattern("01", 100), first=120)
    look_at_projects()
    incident = raised(project)["gold_error_rose"]
    ana = User.objects.get(username="ana-gold")
    assert "50.0 % wrong, expected 10.0 % wrong" in incident.message
    assert f"Annotator {ana.pk} (50)" in incident.message


def audited(project: Project, differs: Iterable[bool], *, first: int, rita: User) -> None:
    """Votes on decided pairs, and a reviewer's second look at each."""
    differs = list(differs)
    rows = [
        {"pair": k, "who": person("ana-audited"), "choice": "a", "cast_at": BEGAN}
        for k in range(first, first + len(differs))
    ]
    known = set(Vote.objects.values_list("pk", flat=True))
    votes_write(project, rows)
    made = Vote.objects.exclude(pk__in=known).select_related("slot").order_by("pk")
    for number, (vote, is_other) in enumerate(zip(made, differs, strict=True), start=first):
        Decision.objects.create(
            project=project,
            comparison=vote.comparison,
            outcome=Decision.Outcome.ACCEPTED,
            winner="a",
            n_a=1,
            n_agreeing=1,
            share=1.0,
        )
        slot = Slot.objects.create(
            project=project,
            task_id=vote.comparison_id,
            position=2,
            kind=Slot.Kind.AUDIT,
            state="done",
            annotator=rita,
            measures_id=vote.pk,
        )
        Vote.objects.create(
            project=project,
            comparison=vote.comparison,
            slot=slot,
            annotator=rita,
            choice="b" if is_other else "a",
            chosen=vote.comparison.response_b if is_other else vote.comparison.response_a,
            idempotency_key=f"audit-{vote.pk}",
            cast_at=BEGAN + timedelta(minutes=number),
        )


def test_audits_that_contradict_more_votes_are_told(project: Project, rita: User) -> None:
    LabelingSettings.objects.create(project=project, audit_rate=0.0)
    audited(project, pattern("0000000001", 100), first=0, rita=rita)
    look_at_projects()
    assert raised(project) == {}
    audited(project, pattern("01", 100), first=100, rita=rita)
    look_at_projects()
    assert set(raised(project)) == {"audit_error_rose"}
    assert "50.0 % wrong, expected 10.0 % wrong" in raised(project)["audit_error_rose"].message


def test_audits_that_wait_too_long_are_told_until_they_are_done(project: Project) -> None:
    LabelingSettings.objects.create(project=project, audit_rate=1.0, audit_days=2)
    rows = [
        {"pair": k, "who": person("ana-waits"), "choice": "a", "cast_at": BEGAN} for k in range(3)
    ]
    votes_write(project, rows)
    pairs = Comparison.objects.all()
    for pair in pairs:
        Decision.objects.create(
            project=project, comparison=pair, outcome="accepted", winner="a", n_a=1
        )
    pairs.update(state=Comparison.State.DECIDED, created_at=BEGAN)
    look_at_projects()
    incident = raised(project)["audits_overdue"]
    assert incident.message.startswith("3 of 3 that wait, expected none after 2 days")
    LabelingSettings.objects.update(audit_rate=0.0)
    later = timezone.now()
    for _ in range(10):  # an hour apart, so that votes are read again
        later += timedelta(hours=1)
        projects_look(now=later)
    told = figure(project, "audits_overdue")
    assert told["state"] == "quiet"
    cleared = incident.entries.get(kind="state").body["cleared"]
    assert cleared == told["inside_since"]
    assert datetime.fromisoformat(cleared) == later - timedelta(hours=9)
    incident.refresh_from_db()
    assert incident.state == Incident.State.OPEN


def test_a_flagged_annotator_is_told_until_somebody_deals_with_them(
    project: Project, ana: User
) -> None:
    AnnotatorReport.objects.create(
        project=project,
        user=ana,
        computed_at=timezone.now(),
        flags=[{"kind": "fast", "label": "fast answers", "sentence": "…", "p": 0.0}],
    )
    look_at_projects()
    incident = raised(project)["annotator_flagged"]
    assert f"Annotator {ana.pk} (fast answers)" in incident.message
    assert ana.display_name not in incident.message.replace("Annotator", "")
    Membership.objects.filter(user=ana).update(paused_reason="asked to rest")
    look_at_projects()
    assert figure(project, "annotator_flagged")["figure"]["value"] == "0 people"
    Membership.objects.filter(user=ana).update(paused_reason="")
    Annotator.objects.filter(user=ana).update(left_out_at=timezone.now())
    look_at_projects()
    assert figure(project, "annotator_flagged")["figure"]["value"] == "0 people"


def test_pairs_that_nobody_rules_on_for_a_week_are_told(project: Project) -> None:
    crowd(project, pattern("0", 25))
    Comparison.objects.update(state=Comparison.State.CONTESTED, overlap=4)
    look_at_projects()
    assert raised(project) == {}  # they came today
    Comparison.objects.update(created_at=BEGAN)
    look_at_projects()
    assert raised(project)["pairs_stuck"].message.startswith("25 pairs, expected at most 20")
    pairs = list(Comparison.objects.order_by("pk")[:5])
    for pair in pairs:
        late = person("crowd-9")
        slot = Slot.objects.create(
            project=project, task=pair, position=9, state="done", annotator=late
        )
        Vote.objects.create(
            project=project,
            comparison=pair,
            slot=slot,
            annotator=late,
            choice="a",
            chosen=pair.response_a,
            idempotency_key=f"{pair.pk}-late",
            cast_at=timezone.now(),
        )
    look_at_projects()
    assert figure(project, "pairs_stuck")["figure"]["value"] == "20 pairs"


def test_a_budget_that_is_nearly_spent_is_told(project: Project) -> None:
    crowd(project, pattern("1", 31))
    look_at_projects()
    assert "no price" in figure(project, "label_spend")["figure"]["missing"]
    LabelingSettings.objects.create(project=project, vote_price=0.1, label_budget=10.0)
    crowd(project, pattern("1", 1), first=40)
    look_at_projects()
    incident = raised(project)["label_spend"]
    assert incident.message.startswith("9.60 EUR, expected a budget of 10.00 EUR")


def test_a_reward_model_behind_the_votes_is_told(project: Project) -> None:
    crowd(project, pattern("1", 150))
    pairs = list(Comparison.objects.order_by("pk"))
    for pair in pairs:
        Decision.objects.create(
            project=project, comparison=pair, outcome="accepted", winner="a", n_a=3
        )
    look_at_projects()
    assert figure(project, "reward_model_stale")["state"] == "missing"
    data = snapshot_make(project, state="draft", uri="", sha256="", frozen_at=None)
    SnapshotRow.objects.bulk_create(
        SnapshotRow(snapshot=data, comparison=pair, split="train", ordinal=k, winner="a")
        for k, pair in enumerate(pairs[:60])
    )
    data.state, data.uri, data.sha256 = "frozen", "snapshots/x", "1" * 64
    data.frozen_at = BEGAN
    data.save()
    checkpoint_make(project, data=data)
    look_at_projects()
    assert raised(project) == {}  # 90 of what counts as 200
    crowd(project, pattern("1", 20), first=200)
    for pair in Comparison.objects.order_by("-pk")[:20]:
        Decision.objects.create(
            project=project, comparison=pair, outcome="accepted", winner="a", n_a=3
        )
    look_at_projects()
    message = raised(project)["reward_model_stale"].message
    assert message.startswith("110 decided pairs since, expected 60 that it learned from")


def test_a_model_in_service_that_was_not_evaluated_for_a_month_is_told(
    project: Project,
    serve: Callable[..., StageChange],
    model: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_at_projects()
    assert figure(project, "evaluation_overdue")["figure"]["missing"] == (
        "no stage names a model yet"
    )
    serve(model)
    look_at_projects()
    assert "evaluation_overdue" not in raised(project)
    later = timezone.now() + timedelta(days=31)
    monkeypatch.setattr(overdue, "timezone", SimpleNamespace(now=lambda: later))
    look_at_projects()
    assert raised(project)["evaluation_overdue"].message.startswith("31 days, expected at most 30")


def test_a_disk_that_fills_is_told(project: Project, roomy: dict[str, float]) -> None:
    roomy["artifact store"] = 0.93
    look_at_projects()
    incident = raised(project)["disk_filling"]
    assert "artifact store 93 %, database 30 %" in incident.message
    assert incident.link == "resources"
    roomy.clear()
    look_at_projects()
    assert "cannot see" in figure(project, "disk_filling")["figure"]["missing"]


def test_the_disk_of_the_embedded_database_is_read_where_it_lies(
    db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its socket lies in its data folder; of a server elsewhere nothing is known."""
    (tmp_path / "PG_VERSION").write_text("18")
    monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))
    assert behind._database_folder() == tmp_path
    monkeypatch.setitem(connection.settings_dict, "HOST", "db.example.org")
    assert behind._database_folder() is None


def test_limits_are_chosen_by_form_and_api_and_audited(
    project: Project, emil: User, ana: User, signed_in: Callable[[User], Client]
) -> None:
    crowd(project, pattern(STEADY, 200) + pattern(LOW, 100))
    look_at_projects()
    client, page = signed_in(emil), f"/p/{project.slug}/monitoring/people/"
    shown = client.get(page)
    assert shown.status_code == 200
    rows = {row.one.rule.name: row for row in shown.context["rows"]}
    assert rows["agreement_fell"].state == "raised"
    assert rows["label_spend"].state == "not enough to judge"
    sent = {
        name: value
        for one in project_rules(project).rules
        for name, value in (
            (f"limit_{one.rule.name}", one.rule.limit),
            (f"on_{one.rule.name}", "on"),
        )
    }
    answered = client.post(page, sent | {"limit_agreement_fell": "0.2", "on_disk_filling": ""})
    assert answered.status_code == 302
    assert ProjectLook.objects.get(project=project).choices == {
        "agreement_fell": {"threshold": 0.2},
        "disk_filling": {"action": "off"},
    }
    event = AuditEvent.objects.get(action="alarms.changed")
    assert event.details["after"]["agreement_fell"] == {"threshold": 0.2}
    look_at_projects()
    assert figure(project, "agreement_fell")["state"] == "quiet"
    assert figure(project, "disk_filling")["state"] == "off"
    assert client.post(page, sent | {"limit_agreement_fell": "often"}).status_code == 422
    api = f"/api/v1/projects/{project.slug}/alarms"
    body = {"alarms": {"agreement_fell": None, "pairs_stuck": {"threshold": 5}}}
    told = client.patch(api, body, content_type="application/json").json()["items"]
    limits = {one["rule"]: (one["limit"], one["own_limit"], one["action"]) for one in told}
    assert limits["agreement_fell"] == (0.05, 0.05, "warn")
    assert limits["pairs_stuck"] == (5, 20, "warn")
    assert limits["disk_filling"][2] == "off"
    wrong = {"alarms": {"agreement_fel": {"threshold": 1}}}
    refused = client.patch(api, wrong, content_type="application/json")
    assert refused.status_code == 400
    assert "is 'agreement_fell' meant?" in refused.content.decode()
    assert signed_in(ana).get(page).status_code == 403


def test_a_choice_that_is_wrong_changes_nothing(project: Project, emil: User) -> None:
    with pytest.raises(DomainError, match="must be a number"):
        alarms_change(
            project=project,
            user=emil,
            changes={"pairs_stuck": {"threshold": "many"}, "disk_filling": {"action": "off"}},
        )
    assert not ProjectLook.objects.filter(project=project).exclude(choices={}).exists()
    assert not AuditEvent.objects.filter(action="alarms.changed").exists()


def test_the_incident_says_its_newest_figure_and_where_to_act(
    project: Project, emil: User, signed_in: Callable[[User], Client]
) -> None:
    crowd(project, pattern(STEADY, 200) + pattern(LOW, 100))
    look_at_projects()
    incident = raised(project)["agreement_fell"]
    page = signed_in(emil).get(f"/p/{project.slug}/monitoring/incidents/{incident.pk}/")
    text = page.content.decode()
    assert f"/p/{project.slug}/agreement/slices/" in text
    assert f"/p/{project.slug}/monitoring/playbook/agreement-fell/" in text
    overview = signed_in(emil).get(f"/p/{project.slug}/monitoring/")
    assert [one.rule.name for one in overview.context["people"]["raised"]] == ["agreement_fell"]
