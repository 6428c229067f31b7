"""The pages of agreement in a browser: live where they claim to be, readable by everybody."""

import pytest
from playwright.sync_api import expect

from apps.accounts.models import Project, Role, User
from apps.agreement.models import Ruling
from apps.agreement.services.consensus import consensus_compare
from apps.labeling.models import Decision, LabelingSettings, Slot
from tests.agreement.crowd import disputed_make, newer_guideline
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
    page.locator("summary", has_text="Custom").click()
    page.get_by_label("Minimum share").fill("70")
    expect(preview).to_contain_text("no longer accepted")
    expect(preview).to_contain_text("37.5 %")
    page.get_by_label("Maximum votes").fill("2")
    expect(preview.locator(".note.bad")).to_be_visible()
    page.get_by_label("Maximum votes").fill("5")
    page.get_by_label("Decide by").select_option("one_coin")
    expect(preview).not_to_contain_text("37.5 %")
    assert Decision.objects.filter(outcome="accepted").count() == 130  # a look changes nothing
    page.get_by_role("button", name="Apply rule").click()
    expect(page.get_by_text("Rule applied")).to_be_visible()
    assert LabelingSettings.objects.get().decide_by == "one_coin"
    assert Decision.objects.filter(decided_by="one_coin").count() == 130


def test_the_settings_show_the_same_preview_beside_the_rule(
    project: Project, open_page, sign_in, live_server
) -> None:
    page = open_page(phone=True)
    sign_in(page, "ada")
    page.goto(f"{live_server.url}/p/arguments/settings/")
    expect(page.locator("#rule-preview")).to_contain_text("130 of 130")
    page.locator("summary", has_text="Custom").click()
    page.get_by_label("Minimum share").fill("90")
    expect(page.locator("#rule-preview")).to_contain_text("no longer accepted")
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


# Ruling on disputes by keys, and asking for audits, in a browser.


@pytest.fixture
def rita() -> User:
    project = Project.objects.create(slug="arguments", name="Arguments")
    return person_make("Rita", project, Role.REVIEWER)


def test_disputes_are_walked_through_and_ruled_on_by_keys(
    rita: User, live_server, open_page, sign_in
) -> None:
    pairs, _ = disputed_make(Project.objects.get(), n=3)
    page = open_page()
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/disputes/")
    readable(page, "list")
    page.get_by_role("link", name="pair-1", exact=True).click()
    readable(page, "dispute")
    page.keyboard.press("j")
    page.wait_for_url(f"**/disputes/{pairs[1].pk}/")
    page.keyboard.press("k")
    page.wait_for_url(f"**/disputes/{pairs[0].pk}/")
    page.keyboard.press("2")
    expect(page.locator("input[name=choice][value=b]")).to_be_checked()
    page.keyboard.press("d")
    expect(page.locator("[data-toggle=diff]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("w")
    page.keyboard.press("c")
    note = page.locator("#id_note")
    note.press_sequentially("just kidding, 2 d")  # letters are letters here
    expect(page).to_have_url(f"{page.url.split('/p/')[0]}/p/arguments/disputes/{pairs[0].pk}/")
    expect(note).to_have_value("just kidding, 2 d")
    page.get_by_role("button", name="Adjudicate").dblclick()
    page.wait_for_url(f"**/disputes/{pairs[1].pk}/")
    expect(page.get_by_text("pair-1 is settled: B is better.")).to_be_visible()
    ruling = Ruling.objects.get()
    assert (ruling.choice, ruling.cause, ruling.by) == ("b", "guideline_gap", rita)


def test_three_disputes_are_adjudicated_by_keys_alone(
    rita: User, live_server, open_page, sign_in
) -> None:
    pairs, _ = disputed_make(Project.objects.get(), n=3)
    page = open_page()
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/disputes/{pairs[0].pk}/")
    expect(page.locator("[data-votes-hidden]")).to_be_visible()
    expect(page.locator("#ruling")).to_be_in_viewport()  # at the foot, wherever one reads
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    error = page.locator("#cause-error")
    expect(error).to_have_text("Choose what caused the dispute.")
    expect(page.locator("input[name=cause]").first).to_be_focused()
    assert page.evaluate("scrollY") == 0
    readable(page, "dispute-error")
    page.keyboard.press("q")
    expect(error).to_be_empty()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/disputes/{pairs[1].pk}/")
    expect(page.get_by_text("Its votes: A 1, B 1.")).to_be_visible()
    for key, cause, then in (("t", "e", pairs[2].pk), ("x", "r", "")):
        page.keyboard.press(key)
        page.keyboard.press(cause)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/disputes/{then}/" if then else "**/disputes/")
    said = Ruling.objects.order_by("pk").values_list("choice", "cause", "saw_votes")
    assert list(said) == [
        ("a", "ambiguous_prompt", False),
        ("tie", "annotator_error", False),
        ("both_bad", "taste", False),
    ]


def test_in_a_low_window_the_ruling_stays_where_it_is(
    rita: User, live_server, open_page, sign_in
) -> None:
    (pair,), _ = disputed_make(Project.objects.get())
    page = open_page()
    page.set_viewport_size({"width": 640, "height": 400})
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/disputes/{pair.pk}/")
    assert page.locator("#ruling").evaluate("form => getComputedStyle(form).position") == "static"


def test_the_pages_stand_on_a_phone_and_in_the_dark(
    rita: User, live_server, open_page, sign_in
) -> None:
    project = Project.objects.get()
    pairs, _ = disputed_make(project, n=2, votes="aab", least_agreeing=2, audit_rate=1.0)
    newer_guideline(project, rita)
    page = open_page(phone=True)
    sign_in(page, rita.username)
    for path in (
        f"disputes/{pairs[0].pk}/",
        "disputes/?show=split",
        "disputes/causes/",
        "disputes/re-annotation/",
        "audits/",
    ):
        page.goto(f"{live_server.url}/p/arguments/{path}")
        readable(page, path)


def test_audits_come_one_after_another(rita: User, live_server, open_page, sign_in) -> None:
    disputed_make(Project.objects.get(), n=2, votes="aa", audit_rate=1.0)
    page = open_page()
    sign_in(page, rita.username)
    page.goto(f"{live_server.url}/p/arguments/audits/")
    page.get_by_role("link", name="Audit now").click()
    expect(page.get_by_text("Audits: you judge pairs again that others voted on")).to_be_visible()
    for n in (1, 2):
        expect(page.get_by_role("heading", name=f"Pair {n} today")).to_be_visible()
        expect(page.get_by_text("an audit", exact=True)).to_be_visible()
        page.wait_for_timeout(400)  # a page just shown takes no keys
        page.keyboard.press("1")
    expect(page.get_by_role("heading", name="No audit is left for you")).to_be_visible()
    assert Slot.objects.filter(kind="audit", state="done", annotator=rita).count() == 2
