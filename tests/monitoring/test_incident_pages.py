"""The inbox, the bell, one incident and its post-mortem, mutes and channels, as pages."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common.registry import playbook_url
from apps.monitoring.models import Channel, Delivery, Incident, Mute
from apps.monitoring.playbook import ENTRIES, entry_for_rule, rules_told, search
from apps.monitoring.playbook.entry import SORTS
from apps.monitoring.selectors.incidents import bell_count
from apps.monitoring.services import channels, incidents
from apps.training.models import Run, RunEvent
from tests.web.world import run_make
from workers.contract.guards import LINKS, RULES, failure_kind
from workers.diagnosis.detectors import DETECTORS
from workers.diagnosis.experiments import EXPERIMENTS
from workers.diagnosis.verdict import CONTRACTS

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
    one, other = opened("a"), opened("b", rule="critic_dead", link="critic")
    page = signed_in(emil).get("/p/arguments/notifications/").content.decode()
    assert 'data-need="incidents" data-n="2"' in page
    assert "incident" not in signed_in(ana).get("/p/arguments/notifications/").content.decode()
    incidents.incident_acknowledge(project=project, incident_id=one.pk, user=emil)
    assert bell_count(project) == 2
    until = timezone.now() + timedelta(hours=1)
    mute = channels.mute_create(
        project=project, user=emil, until=until, reason="known", rule="critic_dead"
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
        [("reward_inverted", "reward", 20), ("critic_dead", "critic", 40)], 1
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


# The playbook: nothing that can fire is left without words, and words find what they mean.


SignIn = Callable[[User], Client]
TABS = {"samples", "charts", "checks", "config", "logs", "lineage", ""}


def test_every_rule_that_can_fire_has_an_entry() -> None:
    told = set(rules_told())
    assert {rule.name for rule in RULES} <= told
    assert {one.rule for one in DETECTORS} <= told
    assert set(CONTRACTS) <= told


def test_no_rule_leads_to_two_entries() -> None:
    rules = [rule for entry in ENTRIES.values() for rule in entry.rules]
    assert len(rules) == len(set(rules))


def test_a_failure_of_a_guardrail_leads_where_its_rule_leads() -> None:
    for rule in RULES:
        assert entry_for_rule(failure_kind(rule.name)) is entry_for_rule(rule.name)
    assert entry_for_rule("bad_config") is None
    assert entry_for_rule("something_new", "critic") is ENTRIES["which-link-first"]


def test_entries_name_only_what_there_is() -> None:
    for slug, entry in ENTRIES.items():
        assert entry.slug == slug
        assert entry.sort in SORTS
        assert {cause.stage for cause in entry.causes} <= set(LINKS), slug
        assert set(entry.see) <= set(ENTRIES), slug
        assert {check.experiment for check in entry.checks} <= {"", *EXPERIMENTS}, slug
        assert {check.tab for check in entry.checks} <= TABS, slug
        assert entry.checks or entry.tables, slug
        assert entry.fixes or entry.tables, slug


def test_the_walkthroughs_of_the_specification_are_there() -> None:
    """SPEC F7: two stories, the four symptoms of the night, and the pitfalls."""
    stories = {"reward-up-benchmark-flat", "reward-down-kl-spike"}
    nights = {one.slug for one in ENTRIES.values() if "2am" in one.tags}
    pitfalls = {"rlhf-pitfalls", "judge-pitfalls", "format-hacking", "refusal-hacking"}
    assert stories | pitfalls | {"agent-pitfalls", "thresholds-read-literally"} <= set(ENTRIES)
    assert len(nights) == 4
    for slug in stories | nights:
        checks = ENTRIES[slug].checks
        assert any(check.experiment for check in checks), slug
        assert all(check.readings for check in checks), slug


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("nan", "not-a-number"),
        ("KL spike", "reward-down-kl-spike"),
        ("clipped_often", "clipped-away"),
        ("tools legality", "agent-pitfalls"),
        ("critic", "critic-explains-nothing"),
        ("Reward hacking", "reward-hacking"),
    ],
)
def test_words_find_the_entry_that_is_about_them_first(words: str, first: str) -> None:
    assert search(words)[0].slug == first


def test_every_word_counts_and_nonsense_finds_nothing() -> None:
    assert search("entropy zzzz") == []
    assert len(search("")) == len(ENTRIES)
    critics = search("", stage="critic")
    assert critics
    assert all(any(cause.stage == "critic" for cause in one.causes) for one in critics)


def test_emil_searches_the_playbook(emil: User, project: Project, signed_in: SignIn) -> None:
    client = signed_in(emil)
    page = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "entropy"})
    assert "stopped exploring" in page.content.decode()
    nothing = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "zzzz"})
    assert "No entry" in nothing.content.decode()


def test_every_entry_can_be_read(emil: User, project: Project, signed_in: SignIn) -> None:
    client = signed_in(emil)
    for slug, entry in ENTRIES.items():
        page = client.get(reverse("monitoring:playbook_entry", args=[project.slug, slug]))
        assert page.status_code == 200, slug
        assert page.context["entry"].entry is entry


def test_an_alert_leads_to_the_entry_of_its_rule(project: Project) -> None:
    assert playbook_url(project.slug, "entropy_floor").endswith("/playbook/stopped-exploring/")
    assert playbook_url(project.slug, "no_such_rule") == ""


def test_the_checks_lead_to_the_run_at_hand(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    run = run_make(project, kind="ppo", state="finished")
    url = reverse("monitoring:playbook_entry", args=[project.slug, "reward-up-benchmark-flat"])
    page = signed_in(emil).get(url, {"run": run.pk}).content.decode()
    assert f"{reverse('training:run', args=[project.slug, run.pk])}?tab=samples" in page


def test_a_run_of_another_project_is_not_at_hand(
    emil: User, olga: User, project: Project, signed_in: SignIn
) -> None:
    foreign = run_make(Project.objects.get(slug="elsewhere"), kind="ppo")
    url = reverse("monitoring:playbook_entry", args=[project.slug, "not-a-number"])
    assert signed_in(emil).get(url, {"run": foreign.pk}).status_code == 404
    assert signed_in(emil).get(url.replace("not-a-number", "nothing")).status_code == 404
