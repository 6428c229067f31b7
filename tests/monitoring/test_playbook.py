"""The playbook: nothing that can fire is left without words, and words find what they mean."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.common.registry import playbook_url
from apps.monitoring.playbook import ENTRIES, entry_for_rule, rules_told, search
from apps.monitoring.playbook.entry import SORTS
from tests.web.runs import run_make
from workers.contract.guards import LINKS, RULES, failure_kind
from workers.diagnosis.detectors import DETECTORS
from workers.diagnosis.experiments import EXPERIMENTS
from workers.diagnosis.verdict import CONTRACTS

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
        assert {cause.link for cause in entry.causes} <= set(LINKS), slug
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
    critics = search("", link="critic")
    assert critics
    assert all(any(cause.link == "critic" for cause in one.causes) for one in critics)


def test_emil_searches_the_playbook(emil: User, project: Project, signed_in: SignIn) -> None:
    client = signed_in(emil)
    page = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "entropy"})
    assert "The policy has stopped exploring" in page.content.decode()
    nothing = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "zzzz"})
    assert "No entry has all of these words" in nothing.content.decode()


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
