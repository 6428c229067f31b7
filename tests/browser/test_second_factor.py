"""Passkeys and codes in a browser, with an authenticator that Chromium plays."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from apps.accounts.models import AuditEvent, Project, Role, User
from tests.accounts.second_factors import code_of
from tests.people import PASSWORD, person_make

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("fresh_sign_in_counts"),
]


@pytest.fixture
def rita() -> User:
    project = Project.objects.create(slug="arguments", name="Arguments")
    return person_make("Rita", project, Role.REVIEWER)


def authenticator_add(page: Page) -> None:
    """A passkey store of the device, whose owner always confirms by finger."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable", {"enableUI": False})
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def site_of(live_server: Any) -> str:
    """By name: browsers bind passkeys to one."""
    return live_server.url.replace("127.0.0.1", "localhost")


def sign_in_by_password(page: Page, site: str) -> None:
    page.goto(f"{site}/sign-in/")
    page.get_by_label("Username or e-mail").fill("rita")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def arrived(page: Page) -> None:
    """Signed in, and nothing is under way any more."""
    page.get_by_role("link", name="Rita").wait_for()
    page.wait_for_load_state("networkidle")


def no_serious_violation(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    serious = [v["id"] for v in found if v["impact"] in ("serious", "critical")]
    assert not serious, (page.url, serious)


def test_rita_adds_a_passkey_and_signs_in_by_it_alone(
    live_server: Any, rita: User, open_page: Callable[..., Page]
) -> None:
    page, site = open_page(), site_of(live_server)
    authenticator_add(page)
    sign_in_by_password(page, site)
    arrived(page)
    page.goto(f"{site}/account/second-factor/")
    no_serious_violation(page)
    page.get_by_role("link", name="Add a passkey").click()
    no_serious_violation(page)
    page.get_by_label("Name").fill("My laptop")
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_text("shown only here")).to_be_visible()  # the recovery codes
    no_serious_violation(page)
    page.goto(f"{site}/account/second-factor/")
    expect(page.get_by_text("My laptop")).to_be_visible()
    expect(page.get_by_text("signs in alone")).to_be_visible()
    # The same device again: the browser refuses, and the page says so.
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_text("has a passkey of yours already")).to_be_visible()

    page.get_by_role("button", name="Sign out").first.click()
    page.wait_for_url("**/sign-in/**")
    no_serious_violation(page)
    page.goto(f"{site}/sign-in/?next=/account/sessions/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Your sessions")).to_be_visible()
    assert AuditEvent.objects.filter(action="user.signed_in").last().details["by"] == "webauthn"

    # After the password it is asked as the second factor.
    page.get_by_role("button", name="Sign out").first.click()
    page.wait_for_url("**/sign-in/**")
    sign_in_by_password(page, site)
    page.wait_for_url("**/sign-in/second-factor/")
    no_serious_violation(page)
    page.get_by_role("button", name="Use a passkey").click()
    arrived(page)


def test_rita_sets_an_app_up_and_signs_in_by_its_code(
    live_server: Any, rita: User, open_page: Callable[..., Page]
) -> None:
    page, site = open_page(), site_of(live_server)
    sign_in_by_password(page, site)
    arrived(page)
    page.goto(f"{site}/account/second-factor/app/")
    no_serious_violation(page)
    expect(page.get_by_alt_text("QR code of the key below")).to_have_js_property("complete", True)
    width = page.get_by_alt_text("QR code of the key below").evaluate("one => one.naturalWidth")
    assert width > 0  # it was drawn: the policy lets it
    key = page.locator(".secret code").inner_text()
    page.get_by_label("Code that the app shows").fill(code_of(key, steps=-1))
    page.get_by_role("button", name="Set up the app").click()
    expect(page.get_by_text("shown only here")).to_be_visible()
    page.get_by_role("button", name="Sign out").first.click()
    page.wait_for_url("**/sign-in/**")

    sign_in_by_password(page, site)
    page.wait_for_url("**/sign-in/second-factor/")
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_text("Incorrect code.")).to_be_visible()
    page.get_by_label("Code").fill(code_of(key))
    page.get_by_role("button", name="Sign in", exact=True).click()
    arrived(page)
    page.goto(f"{site}/account/sessions/")
    expect(page.get_by_text("this one")).to_be_visible()
    no_serious_violation(page)
    page.wait_for_load_state("networkidle")
    page.goto("about:blank")  # no request is under way when the tables are emptied
