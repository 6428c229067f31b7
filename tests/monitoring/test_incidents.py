"""One incident for one problem: what joins it, what moves it, who may close it and how."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.monitoring.models import Channel, Delivery, Incident
from apps.monitoring.services import alerting, incidents
from apps.training.models import Alert as AlertRow
from apps.training.models import Run
from tests.training.reports import batch, report
from workers.contract import Alert, Evidence, Failed, Finished
from workers.contract.events import Event

Commits = Callable[..., Any]
ROOT = {"root_cause": "The reference was the policy itself.", "fix": "Loaded it again."}


def alert(rule: str, step: int, severity: str = "warning") -> Alert:
    return Alert(rule=rule, severity=severity, step=step, message=f"{rule} at {step}", value=1.0)


def evidence(rule: str, link: str, step: int, onset: int | None = None) -> Evidence:
    return Evidence(
        link=link, rule=rule, evidence_class="trend", step=step, onset=onset, expected="less"
    )


def told(incident: Incident) -> list[str]:
    rows = incident.entries.filter(kind="alert", body__told=True).order_by("pk")
    return [row.body["event"] for row in rows]


@pytest.fixture
def heard(run: Run, commits: Commits) -> Callable[..., list[Incident]]:
    """Apply events after those before them, and what follows the commit; the run's incidents."""
    sent = 0

    def hear(*events: Event) -> list[Incident]:
        nonlocal sent
        with commits():
            report(run, *events, first=sent + 1)
        sent += len(events)
        return list(Incident.objects.filter(run=run).order_by("opened_at"))

    return hear


@pytest.fixture
def hook(project: Project) -> Channel:
    return Channel.objects.create(
        project=project, kind="webhook", address="https://example.org/hook", secret="s"
    )


def test_a_hundred_alerts_of_one_cause_are_one_incident_told_of_three_times(
    heard: Callable[..., list[Incident]], hook: Channel
) -> None:
    for first in range(1, 101, 10):
        events: list[Event] = []
        for step in range(first, first + 10):
            severity = "critical" if step >= 50 else "warning"
            events.append(alert("reference_kl", step, severity))
            events.append(evidence("reference_kl", "policy", step))
        heard(*events)
    (incident,) = Incident.objects.all()
    assert (incident.alerts, incident.severity, incident.link) == (100, "critical", "policy")
    assert told(incident) == ["opened", "alert_2", "escalated"]
    assert incident.entries.filter(kind="alert").count() == 100
    assert list(Delivery.objects.order_by("pk").values_list("event", flat=True)) == told(incident)


def test_info_alerts_open_nothing(heard: Callable[..., list[Incident]]) -> None:
    assert heard(alert("reward_saturated", 5, "info")) == []


def test_a_consequence_joins_the_incident_of_its_cause(
    heard: Callable[..., list[Incident]],
) -> None:
    heard(alert("reward_tail", 10), evidence("reward_tail", "reward", 10))
    (incident,) = heard(alert("critic_dead", 20, "critical"), evidence("critic_dead", "critic", 20))
    assert (incident.link, incident.rule, incident.onset_step) == ("reward", "reward_tail", 10)
    assert (incident.alerts, incident.severity) == (2, "critical")


def test_an_earlier_cause_moves_the_incident(heard: Callable[..., list[Incident]]) -> None:
    heard(alert("critic_dead", 20), evidence("critic_dead", "critic", 20))
    (incident,) = heard(
        alert("reward_inverted", 25), evidence("reward_inverted", "reward", 25, onset=5)
    )
    assert (incident.link, incident.rule, incident.onset_step) == ("reward", "reward_inverted", 5)
    moved = incident.entries.get(kind="state").body
    assert (moved["from"]["link"], moved["to_cause"]["link"]) == ("critic", "reward")
    assert incident.key == f"run:{incident.run_id}:reward"


@pytest.mark.parametrize("order", ["before", "after", "next batch"])
def test_evidence_counts_the_same_on_whichever_side_of_its_alert_it_lies(
    heard: Callable[..., list[Incident]], order: str
) -> None:
    """The onset is in the evidence alone: without it the cause would be the critic."""
    heard(alert("critic_dead", 20), evidence("critic_dead", "critic", 20))
    late = alert("reward_inverted", 25)
    proof = evidence("reward_inverted", "reward", 25, onset=5)
    if order == "before":
        heard(proof, late)
    elif order == "after":
        heard(late, proof)
    else:
        (incident,) = heard(late)
        assert incident.rule == "critic_dead", "by the steps of the alerts alone"
        Incident.objects.update(updated_at="2020-01-01T00:00:00Z")
        heard(proof)
        assert alerting.incidents_sweep() == 1
    incident = Incident.objects.get()
    assert (incident.rule, incident.onset_step) == ("reward_inverted", 5)


def test_a_rule_on_no_link_is_told_for_itself(heard: Callable[..., list[Incident]]) -> None:
    (incident,) = heard(alert("my_own_rule", 3))
    assert (incident.link, incident.rule, incident.title) == ("", "my_own_rule", "My own rule")
    (incident,) = heard(alert("critic_dead", 4), evidence("critic_dead", "critic", 4))
    assert incident.link == "critic", "now a cause on the chain is known"


def test_what_comes_after_a_resolution_opens_another_incident_about_its_own_cause(
    heard: Callable[..., list[Incident]], project: Project, emil: User
) -> None:
    (first,) = heard(alert("reward_tail", 10), evidence("reward_tail", "reward", 10))
    incidents.incident_resolve(project=project, incident_id=first.pk, user=emil, learned={})
    _, second = heard(alert("critic_dead", 20), evidence("critic_dead", "critic", 20))
    assert (second.link, second.alerts) == ("critic", 1), "the old evidence is settled"
    first.refresh_from_db()
    assert first.alerts == 1


def test_a_contract_that_ends_a_run_opens_an_incident_without_an_alert(
    heard: Callable[..., list[Incident]],
) -> None:
    (incident,) = heard(Failed("contract_mask", "bug", "5 of 40 tokens are no answer", step=7))
    assert (incident.link, incident.severity, incident.rule) == (
        "policy",
        "critical",
        "contract_mask",
    )
    assert incident.message.startswith("5 of 40")
    alerting.run_settle(run_id=str(incident.run_id))
    assert Incident.objects.count() == 1
    assert told(incident) == ["opened"]


def test_a_healthy_run_opens_nothing(heard: Callable[..., list[Incident]]) -> None:
    assert heard(Finished(step=5)) == []


def test_a_bug_in_the_diagnosis_loses_neither_the_alert_nor_the_incident(
    heard: Callable[..., list[Incident]],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    with caplog.at_level(logging.ERROR):
        monkeypatch.setattr(alerting, "verdict", broken)
        (incident,) = heard(alert("critic_dead", 20), evidence("critic_dead", "critic", 20))
        assert (incident.rule, incident.alerts) == ("critic_dead", 1)
        assert "evidence could not" in caplog.text
        monkeypatch.setattr(alerting, "_join", broken)
        heard(alert("critic_dead", 21))
    run.refresh_from_db()
    assert (run.is_live, AlertRow.objects.count()) == (True, 2)
    monkeypatch.undo()
    assert alerting.incidents_sweep() == 1, "the sweep makes up for it"
    incident.refresh_from_db()
    assert (incident.alerts, incident.link) == (2, "critic")


def test_sweeping_what_is_settled_changes_nothing(heard: Callable[..., list[Incident]]) -> None:
    heard(alert("critic_dead", 20), evidence("critic_dead", "critic", 20))
    assert alerting.incidents_sweep() == 0


# --- what people do ---


def test_acknowledging_counts_once_and_sees_the_alerts(
    heard: Callable[..., list[Incident]], project: Project, emil: User, ada: User
) -> None:
    (incident,) = heard(alert("critic_dead", 20), alert("critic_dead", 21))
    for user in (emil, ada, emil):
        incidents.incident_acknowledge(project=project, incident_id=incident.pk, user=user)
    incident.refresh_from_db()
    assert (incident.state, incident.acknowledged_by) == ("acknowledged", emil)
    assert set(AlertRow.objects.values_list("acknowledged_by", flat=True)) == {emil.pk}
    assert incident.entries.filter(kind="state").count() == 1
    heard(alert("critic_dead", 22))
    assert told(incident) == ["opened", "alert_2"], "somebody looks: only an escalation is told"
    heard(alert("critic_dead", 23, "critical"))
    assert told(incident)[-1] == "escalated"


def test_a_critical_incident_is_closed_with_its_root_cause_and_fix(
    heard: Callable[..., list[Incident]], project: Project, emil: User, ada: User
) -> None:
    (incident,) = heard(alert("critic_dead", 20, "critical"))
    for learned, field in (({}, "root_cause"), ({"root_cause": "The head was frozen."}, "fix")):
        with pytest.raises(DomainError) as refused:
            incidents.incident_resolve(
                project=project, incident_id=incident.pk, user=emil, learned=learned
            )
        assert refused.value.field == field
    incidents.incident_resolve(project=project, incident_id=incident.pk, user=emil, learned=ROOT)
    incidents.incident_resolve(project=project, incident_id=incident.pk, user=ada, learned=ROOT)
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by, incident.fix) == ("resolved", emil, ROOT["fix"])
    with pytest.raises(Conflict, match="Emil"):
        incidents.incident_resolve(
            project=project, incident_id=incident.pk, user=ada, learned={"fix": "Another."}
        )


def test_nobody_overwrites_what_somebody_else_wrote_without_being_told(
    heard: Callable[..., list[Incident]], project: Project, emil: User, ada: User
) -> None:
    (incident,) = heard(alert("critic_dead", 20))
    write: dict[str, Any] = {"project": project, "incident_id": incident.pk}
    incidents.incident_write_up(
        **write, user=emil, learned={"assumption": "Too slow."}, seen={"assumption": ""}
    )
    with pytest.raises(Conflict, match="Too slow") as refused:
        incidents.incident_write_up(
            **write, user=ada, learned={"assumption": "A dead head."}, seen={"assumption": ""}
        )
    assert refused.value.field == "assumption"


def test_the_same_note_twice_in_a_row_is_one(
    heard: Callable[..., list[Incident]], project: Project, emil: User, ada: User
) -> None:
    (incident,) = heard(alert("critic_dead", 20))
    for user in (emil, emil, ada):
        incidents.incident_note(
            project=project, incident_id=incident.pk, user=user, text="Looking."
        )
    assert incident.entries.filter(kind="note").count() == 2


def test_many_are_resolved_at_once_and_those_that_need_more_stay_open(
    project: Project, emil: User
) -> None:
    made = [
        incidents.incident_open(
            project=project,
            key=f"watch:{n}",
            link="reward",
            rule="probe",
            title=f"Watch {n}",
            message="It differs.",
            severity=severity,
        )
        for n, severity in enumerate(["warning", "critical", "warning"])
    ]
    done, refused = incidents.incidents_resolve(
        project=project,
        incident_ids=[one.pk for one in made],
        user=emil,
        learned={"root_cause": "A deployment."},
    )
    assert [one.pk for one in done] == [made[0].pk, made[2].pk]
    assert [(one.pk, error.field) for one, error in refused] == [(made[1].pk, "fix")]


def test_other_causes_open_incidents_too_and_join_what_is_open(project: Project) -> None:
    given: dict[str, Any] = {
        "project": project,
        "key": "watch:1",
        "link": "reward",
        "rule": "probe_drift",
        "title": "The reward model answers differently",
        "message": "0.7 → 0.4",
    }
    first = incidents.incident_open(**given, severity="warning")
    again = incidents.incident_open(**given, severity="critical", value=float("nan"))
    assert first.pk == again.pk
    assert (again.alerts, again.severity, told(again)) == (2, "critical", ["opened", "escalated"])


def test_an_incident_of_another_project_is_not_there(olga: User, project: Project) -> None:
    made = incidents.incident_open(
        project=project, key="x", link="", rule="r", title="t", message="", severity="warning"
    )
    elsewhere = Project.objects.get(slug="elsewhere")
    with pytest.raises(Missing):
        incidents.incident_acknowledge(project=elsewhere, incident_id=made.pk, user=olga)


@pytest.mark.django_db(transaction=True)
def test_event_workers_at_once_make_one_incident(project: Project) -> None:
    run = Run.objects.create(project=project, name="one", kind="drill", state="running", attempt=1)
    run.attempts.create(number=1)
    others = []
    for n in range(2):
        other = Run.objects.create(
            project=project, name=f"o{n}", kind="drill", state="running", attempt=1
        )
        other.attempts.create(number=1)
        others.append(other)
    events = [alert("critic_dead", step) for step in range(1, 9)]
    batches = [batch(run, event, first=n) for n, event in enumerate(events, 1)]
    batches += [batch(other, *events) for other in others]

    def apply(number: int) -> None:
        from apps.training.services import events_apply

        try:
            for one in batches:  # each worker sends all of them: a gap is refused and comes again
                events_apply(batch=one)
            incidents.incident_open(
                project=project,
                key="watch:1",
                link="",
                rule="r",
                title="t",
                message="",
                severity="warning",
            )
            alerting.incidents_sweep()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(apply, range(4)))
    assert sorted(Incident.objects.values_list("alerts", flat=True)) == [4, 8, 8, 8]
    assert AlertRow.objects.filter(entry__isnull=True).count() == 0
