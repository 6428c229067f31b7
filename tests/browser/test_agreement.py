"""The pages of agreement in a browser: live where they claim to be, readable by everybody."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from apps.agreement.services.consensus import consensus_compare
from apps.labeling.models import Decision, LabelingSettings
from tests.agreement.large_crowd import crowd_write, people_write, spammed_votes
from tests.browser.readable import readable
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def project() -> Project:
    """130 pairs with five votes each by ten people, three of whom flip coins."""
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ada", project, Role.ADMIN)
    votes, truth = spammed_votes(
        n_items=130, n_people=10, per_item=5, spammers=3, accuracy=0.85, seed=5
    )
    crowd_write(project, people_write(project, 10), votes, golds=truth)
    LabelingSettings.objects.create(project=project)
    consensus_compare(project=project)
    return project


def test_the_preview_follows_the_rule_as_it_is_typed(
    project: Project, open_page, sign_in, live_server
) -> None:
    page = open_page()
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/agreement/decisions/")
    preview = page.locator("#rule-preview")
    expect(preview).to_contain_text("130 of 130")
    expect(preview).to_contain_text("100.0 %")
    page.get_by_label("Least share").fill("0.7")
    expect(preview).to_contain_text("taken back")
    expect(preview).to_contain_text("37.5 %")
    page.get_by_label("Most votes").fill("2")
    expect(preview).to_contain_text("nothing could ever be accepted")
    page.get_by_label("Most votes").fill("5")
    page.get_by_label("Decide by").select_option("one_coin")
    expect(preview).not_to_contain_text("37.5 %")
    assert Decision.objects.filter(outcome="accepted").count() == 130  # a look changes nothing
    page.get_by_role("button", name="Put in force").click()
    expect(page.get_by_text("The rule is in force")).to_be_visible()
    assert LabelingSettings.objects.get().decide_by == "one_coin"
    assert Decision.objects.filter(decided_by="one_coin").count() == 130


def test_the_settings_show_the_same_preview_beside_the_rule(
    project: Project, open_page, sign_in, live_server
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/settings/")
    expect(page.locator("#rule-preview")).to_contain_text("130 of 130")
    page.get_by_label("Least share").fill("0.9")
    expect(page.locator("#rule-preview")).to_contain_text("taken back")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert 0 < Decision.objects.filter(outcome="accepted").count() < 100


@pytest.mark.parametrize(("phone", "dark"), [(False, False), (True, True)])
def test_everybody_can_read_the_pages_of_agreement(
    project: Project, open_page, sign_in, live_server, phone: bool, dark: bool
) -> None:
    page = open_page(phone=phone, dark=dark)
    sign_in(page, "ada")
    for path in PAGES:
        answer = page.goto(f"{live_server.url}/p/arguments/{path}")
        assert answer is not None
        assert answer.status == 200, path
        name = f"{path.strip('/').replace('/', '-')}-{'phone' if phone else 'desk'}"
        readable(page, name, themes=["dark" if dark else "light"])


PAGES = (
    "agreement/decisions/",
    "agreement/annotators/",
    "comparisons/",
    "datasets/",
    "datasets/new/",
    "ready/",
)
