"""The inbox, the bell, one incident and its post-mortem, mutes and channels, as pages."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common.registry import playbook_url
from apps.monitoring.models import Channel, Delivery, Incident, Mute
from apps.monitoring.selectors.incidents import bell_count
from apps.monitoring.services import channels, incidents
from apps.training.models import Run, RunEvent

SignedIn = Callable[[User], Client]
INBOX = "/p/arguments/monitoring/incidents/"


@pytest.fixture
def run(project: Project) -> Run:
    made = Run.objects.create(
        project=project, name="ppo seven", kind="ppo", state="running", attempt=1, step=60
    )
    made.attempts.create(number=1)
    return made


@pytest.fixture
def opened(project: Project, run: Run) -> Callable[..., Incident]:
    def make(key: str = "a", severity: str = "warning", **more: Any) -> Incident:
        given = {"link": "reward", "rule": "reward_tail", "title": f"Problem {key}", "message": "m"}
        given |= {"run": run, "onset_step": 20}
        return incidents.incident_open(
            project=project, key=key, severity=severity, **(given | more)
        )

    return make


def page_of(incident: Incident) -> str:
    return f"{INBOX}{incident.pk}/"


def test_the_inbox_lists_open_ones_worst_first_and_filters_live_in_the_address(
    opened: Callable[..., Incident], emil: User, signed_in: SignedIn, project: Project
) -> None:
    opened("small")
    opened("large", "critical")
    gone = opened("gone", link="critic", title="Of long ago")
    incidents.incident_resolve(
        project=project, incident_id=gone.pk, user=emil, learned={"lesson": "Look at the critic."}
    )
    client = signed_in(emil)
    page = client.get(INBOX).content.decode()
    assert page.index("Problem large") < page.index("Problem small")
    assert "Of long ago" not in page
    assert "2 incidents" in page
    found = client.get(f"{INBOX}?state=resolved&q=look+at+the+critic&link=critic").content.decode()
    assert "Of long ago" in found
    assert (
        "No matching incidents" in client.get(f"{INBOX}?severity=critical&q=small").content.decode()
    )


def test_an_empty_inbox_says_why(emil: User, signed_in: SignedIn) -> None:
    assert "No open incidents" in signed_in(emil).get(INBOX).content.decode()


@pytest.mark.parametrize("query", ["state=x&sort=x&link=x", "page=zzz", "rule=x"])
def test_malformed_filters_do_no_harm(query: str, emil: User, signed_in: SignedIn) -> None:
    assert signed_in(emil).get(f"{INBOX}?{query}").status_code == 200


def test_the_bell_counts_what_is_neither_resolved_nor_muted_and_rings_for_staff_alone(
    opened: Callable[..., Incident], project: Project, emil: User, ana: User, signed_in: SignedIn
) -> None:
    one, other = opened("a"), opened("b", rule="explained_variance", link="critic")
    page = signed_in(emil).get("/p/arguments/notifications/").content.decode()
    assert 'data-need="incidents" data-n="2"' in page
    assert "incident" not in signed_in(ana).get("/p/arguments/notifications/").content.decode()
    incidents.incident_acknowledge(project=project, incident_id=one.pk, user=emil)
    assert bell_count(project) == 2
    until = timezone.now() + timedelta(hours=1)
    mute = channels.mute_create(
        project=project, user=emil, until=until, reason="known", rule="explained_variance"
    )
    with CaptureQueriesContext(connection) as asked:
        assert bell_count(project) == 1
    assert len(asked) == 1
    channels.mute_lift(project=project, mute_id=mute.pk, user=emil)
    incidents.incident_resolve(project=project, incident_id=other.pk, user=emil, learned={})
    assert bell_count(project) == 1


def test_the_page_shows_what_broke_first_what_followed_and_drafts_the_post_mortem(
    opened: Callable[..., Incident], run: Run, emil: User, signed_in: SignedIn
) -> None:
    for seq, (rule, link, onset) in enumerate(
        [("reward_inverted", "reward", 20), ("explained_variance", "critic", 40)], 1
    ):
        body = {
            "link": link,
            "rule": rule,
            "evidence_class": "probe",
            "step": onset + 5,
            "onset": onset,
            "value": 0.31,
            "expected": "at least 0.6",
            "unit": "share",
        }
        RunEvent.objects.create(
            run=run, attempt=1, seq=seq, at=timezone.now(), type="Evidence", body=body
        )
    incident = opened(f"run:{run.pk}:reward", "critical", rule="reward_inverted")
    page = signed_in(emil).get(page_of(incident)).content.decode()
    first, after = page.index("The reward points the wrong way"), page.index("What followed")
    assert first < after < page.index("The critic explains")
    symptom = re.search(r'name="symptom"[^>]*>([^<]*)<', page)
    assert symptom is not None
    assert "0.310 share" in symptom[1]
    assert f"{run.pk}/?tab=charts&amp;step=20" in page
    assert "“reward” broke first" in page


def test_resolving_a_critical_one_names_the_missing_field_and_keeps_what_was_typed(
    opened: Callable[..., Incident], emil: User, signed_in: SignedIn
) -> None:
    incident, client = opened(severity="critical"), signed_in(emil)
    typed = {"action": "resolve", "root_cause": "A <swapped> label.", "fix": "", "seen_fix": ""}
    answer = client.post(f"{page_of(incident)}resolve/", typed)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "needs a fix" in page
    assert "A &lt;swapped&gt; label." in page
    typed["fix"] = "Swapped back."
    for _ in range(2):  # a double click
        assert client.post(f"{page_of(incident)}resolve/", typed).status_code == 302
    incident.refresh_from_db()
    assert (incident.state, incident.fix) == ("resolved", "Swapped back.")
    assert incident.entries.filter(body__to="resolved").count() == 1


def test_who_is_second_to_resolve_is_told_and_keeps_their_words(
    opened: Callable[..., Incident], emil: User, ada: User, signed_in: SignedIn
) -> None:
    incident = opened()
    for user, lesson, status in ((emil, "One.", 302), (ada, "Two.", 409)):
        sent = {"action": "resolve", "lesson": lesson, "seen_lesson": ""}
        answer = signed_in(user).post(f"{page_of(incident)}resolve/", sent)
        assert answer.status_code == status
    page = answer.content.decode()
    assert "Emil resolved it" in page
    assert ">Two.</textarea>" in page


def test_lessons_of_the_same_rule_are_shown_on_the_next_incident(
    opened: Callable[..., Incident], project: Project, emil: User, signed_in: SignedIn
) -> None:
    old = opened("old")
    incidents.incident_resolve(
        project=project, incident_id=old.pk, user=emil, learned={"lesson": "Clip the reward."}
    )
    client = signed_in(emil)
    page = client.get(page_of(opened("new"))).content.decode()
    assert "Lessons from" in page
    assert "Clip the reward." in page
    entry = client.get(playbook_url(project.slug, "reward_tail")).content.decode()
    assert "Clip the reward." in entry, "and where the playbook speaks of the rule"


def test_many_are_acknowledged_and_resolved_at_once(
    opened: Callable[..., Incident], emil: User, signed_in: SignedIn
) -> None:
    small, large = opened("small"), opened("large", "critical")
    client, ids = signed_in(emil), [small.pk, large.pk]
    assert client.post(f"{INBOX}bulk/", {"action": "acknowledge"}).status_code == 400
    sent: dict[str, Any] = {"action": "acknowledge", "incident": ids}
    assert client.post(f"{INBOX}bulk/?sort=newest", sent).status_code == 302
    assert set(Incident.objects.values_list("state", flat=True)) == {"acknowledged"}
    sent |= {"action": "resolve", "root_cause": "One deployment.", "fix": ""}
    answer = client.post(f"{INBOX}bulk/", sent)
    assert answer.status_code == 400
    assert "1 resolved, 1 still open" in answer.content.decode()
    client.post(f"{INBOX}bulk/", sent | {"fix": "Rolled back."})
    assert set(Incident.objects.values_list("state", flat=True)) == {"resolved"}


def test_a_mute_has_an_end_and_a_reason_stops_telling_and_is_lifted(
    opened: Callable[..., Incident], project: Project, emil: User, signed_in: SignedIn
) -> None:
    Channel.objects.create(project=project, kind="email", address="a@example.org")
    incident, client = opened(), signed_in(emil)
    told = Delivery.objects.count()
    where = f"{page_of(incident)}mute/"
    for missing in ({"until": "1h"}, {"reason": "x"}, {"reason": "x", "until_date": "2020-01-01"}):
        answer = client.post(where, {"what": "here", **missing})
        assert answer.status_code == 422
    assert "in the past" in answer.content.decode()
    for _ in range(2):  # a double click
        sent = {"what": "here", "until": "8h", "reason": "known"}
        assert client.post(where, sent).status_code == 302
    mute = Mute.objects.get()
    assert abs(mute.until - timezone.now() - timedelta(hours=8)) < timedelta(minutes=1)
    opened(severity="critical")
    incident.refresh_from_db()
    assert (incident.severity, incident.alerts) == ("critical", 2), "recorded"
    assert Delivery.objects.count() == told, "told to nobody"
    assert "muted" in client.get(INBOX).content.decode()
    assert "in 7 h" in client.get("/p/arguments/monitoring/mutes/").content.decode()
    client.post(f"/p/arguments/monitoring/mutes/{mute.pk}/lift/")
    opened(severity="critical")
    assert Delivery.objects.count() == told + 1


def test_a_mute_that_ran_out_mutes_nothing_without_any_job(
    opened: Callable[..., Incident], project: Project, emil: User
) -> None:
    Mute.objects.create(project=project, reason="x", until=timezone.now() - timedelta(seconds=1))
    opened()
    assert bell_count(project) == 1


def test_a_secret_is_shown_once(project: Project, emil: User, signed_in: SignedIn) -> None:
    client, where = signed_in(emil), "/p/arguments/monitoring/channels/"
    sent = {"kind": "webhook", "address": "https://example.org/x", "least_severity": "warning"}
    sent["tells"] = "incidents"
    assert client.post(where, sent).status_code == 302
    secret = Channel.objects.get().secret
    assert secret in client.get(where).content.decode()
    assert secret not in client.get(where).content.decode()
    again = client.post(where, sent)
    assert again.status_code == 422
    assert "already" in again.content.decode()


def test_programs_read_acknowledge_and_resolve(
    opened: Callable[..., Incident], emil: User, client: Client
) -> None:
    incident = opened(severity="critical")
    root = "/api/v1/projects/arguments/incidents"
    _, text = token_create(user=emil, name="t", scopes=["read", "train"], days=1)
    headers = {"authorization": f"Bearer {text}"}
    listed = client.get(root, {"severity": "critical"}, headers=headers).json()
    assert [one["id"] for one in listed["items"]] == [incident.pk]
    one = f"{root}/{incident.pk}"
    seen = client.post(f"{one}/acknowledge", {}, "application/json", headers=headers).json()
    assert (seen["state"], seen["acknowledged_by"]) == ("acknowledged", "emil")
    refused = client.post(f"{one}/resolve", {}, "application/json", headers=headers)
    assert (refused.status_code, refused.json()["field"]) == (400, "root_cause")
    learned = {"root_cause": "A sign.", "fix": "Turned it."}
    done = client.post(f"{one}/resolve", learned, "application/json", headers=headers).json()
    assert (done["state"], done["entries"][-1]["body"]["to"]) == ("resolved", "resolved")


def test_ids_of_another_project_lead_nowhere(
    opened: Callable[..., Incident], project: Project, olga: User, signed_in: SignedIn
) -> None:
    incident, client = opened(), signed_in(olga)
    channel = Channel.objects.create(project=project, kind="email", address="a@example.org")
    mute = Mute.objects.create(project=project, reason="x", until=timezone.now())
    root = "/p/elsewhere/monitoring"
    for path in (
        f"incidents/{incident.pk}/acknowledge",
        f"incidents/{incident.pk}/resolve",
        f"incidents/{incident.pk}/note",
        f"incidents/{incident.pk}/mute",
        f"channels/{channel.pk}/test",
        f"channels/{channel.pk}/change",
        f"channels/{channel.pk}/delete",
        f"mutes/{mute.pk}/lift",
    ):
        sent = {"text": "x", "what": "rule", "until": "1h", "reason": "x", "enabled": "no"}
        assert client.post(f"{root}/{path}/", sent).status_code == 404, path
    assert client.get(f"{root}/incidents/{incident.pk}/").status_code == 404
    sent = {"run": incident.run_id, "until": "1h", "reason": "x"}
    assert client.post(f"{root}/mutes/", sent).status_code == 422
    picked = client.post(f"{root}/incidents/bulk/", {"incident": incident.pk})
    assert picked.status_code == 404
    incident.refresh_from_db()
    assert incident.state == "open"
