"""The playbook: nothing that can fire or fail is left without words, words find what they mean, and
no page stands apart."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.common import playbook
from apps.common.playbook import FOLDER, PageError, page_for, page_of, page_read, pages, search
from apps.common.registry import playbook_url
from apps.monitoring.services import judging
from tests.web.world import run_make
from workers.rules.choices import failure_kind
from workers.rules.diagnosis import CONTRACTS
from workers.rules.experiments import EXPERIMENTS
from workers.rules.rule import STAGES
from workers.rules.table import RULES

SignIn = Callable[[User], Client]
TABS = {"samples", "charts", "checks", "config", "logs", "lineage", ""}


def test_every_rule_contract_and_failure_has_a_page_and_advice() -> None:
    for rule in RULES:
        page = pages()[rule.page]
        assert rule.name in page.advice, rule.name
        assert all(page_of(name) is page for name in (*rule.names, failure_kind(rule.name)))
    assert all(page_of(kind) and playbook.next_step(kind) for kind in set(CONTRACTS))


def test_no_rule_or_failure_is_spoken_of_on_two_pages() -> None:
    names = [name for page in pages().values() for name in page.rules]
    assert len(names) == len(set(names))
    advised = [name for page in pages().values() for name in page.advice]
    assert sorted(advised) == sorted({rule.name for rule in RULES})


def test_what_no_page_names_leads_to_the_order_of_checks_where_its_stage_is_known() -> None:
    assert page_for("something_new") is None
    assert page_for("something_new", "critic") is pages()[playbook.START]


def test_pages_name_only_what_there_is() -> None:
    for slug, page in pages().items():
        assert page.slug == slug
        assert {cause.name for cause in page.causes} <= set(STAGES), slug
        assert set(page.see) <= set(pages()), slug
        assert {check.experiment for check in page.checks} <= {"", *EXPERIMENTS}, slug
        assert {check.tab for check in page.checks} <= TABS, slug
        assert page.checks or page.sections or page.next_steps, slug
        assert not set(re.findall(r"\]\((?!check:|tab:)([^)]*)\)", page.text)), slug
    for name in EXPERIMENTS:
        asked = playbook.experiment_words(name)
        assert asked.do
        assert [one.name for one in asked.readings] == ["Yes", "No"]


def test_every_page_is_listed_and_none_lies_beside_them(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{slug}.md" for slug in pages()}
    where = reverse("monitoring:playbook", args=[project.slug])
    listed = signed_in(emil).get(where).content.decode()
    assert [slug for slug in pages() if f'href="{where}{slug}/"' not in listed] == []


@pytest.mark.parametrize(
    "source",
    [
        "---\ntitle: A\nsort: rule\n---\n",  # no summary
        "---\ntitle: A\nsort: tale\nsummary: B\n---\n",
        "---\ntitle\n---\n",
        "---\ntitle: A\nsort: rule\nsummary: B\n---\n\n## Causes\n\n- no stage\n",
        "---\ntitle: A\nsort: rule\nsummary: B\n---\n\n## Checks\n\n- **first** B\n",
    ],
)
def test_a_page_that_is_not_of_its_form_is_refused_by_name(source: str) -> None:
    with pytest.raises(PageError, match=r"planted\.md"):
        page_read("planted", source)


def test_the_walkthroughs_of_the_specification_are_there() -> None:
    """SPEC F7: two stories, the four symptoms of the night, and the pitfalls."""
    stories = {"reward-up-benchmark-flat", "reward-down-kl-spike"}
    nights = {one.slug for one in pages().values() if "2am" in one.tags}
    pitfalls = {"rlhf-pitfalls", "judge-pitfalls", "format-hacking", "refusal-hacking"}
    assert stories | pitfalls | {"agent-pitfalls", "thresholds-read-literally"} <= set(pages())
    assert len(nights) == 4
    for slug in stories | nights:
        checks = pages()[slug].checks
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
    assert len(search("")) == len(pages())
    critics = search("", stage="critic")
    assert critics
    assert all(any(cause.name == "critic" for cause in one.causes) for one in critics)


def test_emil_searches_the_playbook(emil: User, project: Project, signed_in: SignIn) -> None:
    client = signed_in(emil)
    page = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "entropy"})
    assert "stopped exploring" in page.content.decode()
    nothing = client.get(reverse("monitoring:playbook", args=[project.slug]), {"q": "zzzz"})
    assert "No entry" in nothing.content.decode()


def test_every_entry_can_be_read(emil: User, project: Project, signed_in: SignIn) -> None:
    client = signed_in(emil)
    for slug, entry in pages().items():
        page = client.get(reverse("monitoring:playbook_entry", args=[project.slug, slug]))
        assert page.status_code == 200, slug
        assert page.context["entry"].entry is entry


def test_an_alert_leads_to_the_entry_of_its_rule(project: Project) -> None:
    assert playbook_url(project.slug, "entropy_floor").endswith("/playbook/stopped-exploring/")
    assert playbook_url(project.slug, "no_such_rule") == ""


def test_every_finding_of_a_probe_leads_to_what_to_do(project: Project) -> None:
    found = {
        value
        for value in vars(judging).values()
        if isinstance(value, str) and value.startswith("probe_")
    }
    assert {"probe_server", "probe_answers", "probe_latency", "probe_failed"} <= found
    for rule in found:
        assert playbook_url(project.slug, rule).endswith("/playbook/monitored-model-differs/"), rule
        assert playbook.advice(rule) == playbook.next_step(rule) != ""


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
