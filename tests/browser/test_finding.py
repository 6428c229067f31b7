"""The list of comparisons in a browser: found, chosen and acted on."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role
from apps.labeling import services
from apps.labeling.models import Comparison
from tests.browser.readable import readable
from tests.labeling.pairs import annotators_make, vote
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Ada", project, Role.ADMIN)
    subjects = ("the economy", "plastic bottles", "school uniforms", "night trains")
    services.comparisons_import(
        project=project,
        batch="march.jsonl",
        rows=[
            {
                "id": f"q{n:03}",
                "prompt": f"What should a council decide about {subjects[n % 4]}, case {n}?",
                "response_a": f"It should ask people first. Costs come second in case {n}.",
                "response_b": f"Nothing: markets find a recession sooner than councils do, {n}.",
                "topic": subjects[n % 4],
                "model_a": "gpt-x",
                "model_b": "our-sft",
            }
            for n in range(1, 121)
        ],
    )
    (ben,) = annotators_make(project, 1)
    for n in range(6):
        vote(project, ben, "ab"[n % 2])
    return project


@pytest.mark.parametrize("phone", [False, True])
def test_what_is_found_can_be_chosen_and_acted_on(
    project: Project, open_page, sign_in, live_server, phone: bool
) -> None:
    page = open_page(phone=phone)
    size = "phone" if phone else "desktop"
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/comparisons/")
    readable(page, f"comparisons-{size}")
    page.get_by_label("Search texts or an id").fill("recess econ")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("[data-count]")).to_have_attribute("data-count", "30")
    page.get_by_text("More filters").click()
    page.get_by_label("Model of A or B").select_option("gpt-x")
    expect(page.locator("[data-chip]")).to_have_count(2)
    page.get_by_role("link", name="Imported").click()
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    readable(page, f"comparisons-filtered-{size}")
    page.locator("tbody .primary-link").nth(1).click()
    expect(page.get_by_role("link", name="Previous")).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.locator("h1")).to_contain_text("q012")
    readable(page, f"comparison-beside-{size}")
    page.get_by_role("navigation", name="Where this is").get_by_role("link").click()
    expect(page.locator("[data-chip]")).to_have_count(2)
    page.get_by_label("Choose q004").check()
    page.get_by_label("Choose q012").check()
    page.get_by_label("With the checked").select_option("drop")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("[data-changed]")).to_have_attribute("data-changed", "2")
    readable(page, f"bulk-{size}")
    page.get_by_role("button", name="Drop (2)").click()
    expect(page.locator("[data-chip]")).to_have_count(2)
    dropped = Comparison.objects.filter(state="dropped").order_by("pk")
    assert list(dropped.values_list("external_id", flat=True)) == ["q004", "q012"]
    page.get_by_label("Name of this filter and order").fill("Recessions")
    page.get_by_role("button", name="Save view").click()
    page.locator("summary", has_text="Views").click()
    expect(page.get_by_role("link", name="Recessions").first).to_be_visible()
    page.get_by_role("button", name="With all 30 that fit").click()
    expect(page.locator("[data-changed]")).to_have_attribute("data-changed", "30")
