"""An authenticator app, recovery codes, and roles that need a second factor."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.core.management import CommandError, call_command
from django.test import Client

from apps.accounts import throttle
from apps.accounts.models import AuditEvent, BrowserSession, Project, User
from apps.accounts.services import membership_set, password_link_make, token_create
from apps.common.environment import ROLES, BadEnvironment, roles
from tests.accounts.second_factors import (
    SECRET,
    app_make,
    code_of,
    is_signed_in,
    sign_in,
    stale,
)
from tests.people import PASSWORD

pytestmark = pytest.mark.usefixtures("fresh_sign_in_counts")
SignedIn = Callable[[User], Client]
NEEDED = "/account/second-factor/"


def actions() -> list[str]:
    return list(AuditEvent.objects.order_by("pk").values_list("action", flat=True))


def test_ana_sets_an_app_up_and_is_shown_recovery_codes_once(
    ana: User, signed_in: SignedIn, django_capture_on_commit_callbacks: Any
):
    client = signed_in(ana)
    page = client.get("/account/second-factor/app/").content.decode()
    secret = re.search(r"<code>([A-Z2-7]{32})</code>", page)[1]
    assert "data:image/svg+xml" in page
    wrong = client.post("/account/second-factor/app/", {"code": "000000"})
    assert wrong.context["form"].has_error("code", "incorrect_code")
    assert secret in wrong.content.decode()  # the app that has it already stays good
    with django_capture_on_commit_callbacks(execute=True):
        made = client.post("/account/second-factor/app/", {"code": code_of(secret)})
    assert made.url == "/account/second-factor/codes/"
    first = client.get(made.url)
    codes = first.context["unused_codes"]
    assert len(codes) == 10
    assert codes[0] in first.content.decode()
    assert first.headers["Cache-Control"].count("no-store") >= 1
    assert codes[0] not in client.get(made.url).content.decode()
    with django_capture_on_commit_callbacks(execute=True):
        client.post("/account/second-factor/codes/new/")
    renewed = client.get(made.url).context["unused_codes"]
    assert not set(renewed) & set(codes)
    assert actions() == ["second_factor.added"] * 2 + ["second_factor.codes_made"]


def test_after_the_password_the_code_is_asked(ana: User, client: Client):
    app_make(ana)
    page = sign_in(client, "ana")
    assert page.url == "/sign-in/second-factor/"
    assert not is_signed_in(client)
    assert client.get("/account/").status_code == 302
    wrong = client.post(page.url, {"code": "000000"})
    assert wrong.status_code == 200
    assert not is_signed_in(client)
    client.post(page.url, {"code": code_of()})
    assert is_signed_in(client)
    last = AuditEvent.objects.get(action="user.signed_in")
    assert last.details["by"] == "password, totp"
    assert "second_factor.failed" in actions()


def test_a_code_works_once(ana: User):
    app_make(ana)
    code = code_of()
    for tried, works in ((Client(), True), (Client(), False)):
        sign_in(tried, "ana")
        tried.post("/sign-in/second-factor/", {"code": code})
        assert is_signed_in(tried) is works


def test_the_page_one_wanted_is_reached_after_the_code(ana: User, client: Client):
    app_make(ana)
    client.post("/sign-in/", {"login": "ana", "password": PASSWORD, "next": "/account/sessions/"})
    page = client.post("/sign-in/second-factor/", {"code": code_of()})
    assert page.url == "/account/sessions/"


def test_guessing_codes_has_to_wait_from_wherever_it_comes(ana: User):
    app_make(ana)
    for number in range(throttle.FREE_TRIES):
        guesser = Client(REMOTE_ADDR=f"203.0.113.{number}")
        sign_in(guesser, "ana")
        guesser.post("/sign-in/second-factor/", {"code": "000000"})
    client = Client()
    sign_in(client, "ana")
    page = client.post("/sign-in/second-factor/", {"code": code_of()})
    assert page.context["form"].has_error("code", "too_many_tries")
    assert not is_signed_in(client)


def test_a_recovery_code_opens_once_and_is_in_the_audit_log(ana: User):
    app_make(ana)
    code = RecoveryCodes.activate(ana).get_unused_codes()[0]
    for tried, works in ((Client(), True), (Client(), False)):
        sign_in(tried, "ana")
        tried.post("/sign-in/second-factor/", {"code": code})
        assert is_signed_in(tried) is works
    assert actions().count("second_factor.code_used") == 1


def test_after_a_password_reset_the_code_is_still_asked(ana: User, ada: User, client: Client):
    app_make(ana)
    link = password_link_make(user=ana, by=ada)
    page = client.get(link, follow=True)
    new = "a-new-pass-phrase"
    client.post(page.redirect_chain[-1][0], {"password1": new, "password2": new})
    ana.refresh_from_db()
    assert ana.check_password(new)
    assert not is_signed_in(client)
    assert sign_in(client, "ana", new).url == "/sign-in/second-factor/"


def test_the_last_factor_takes_the_recovery_codes_with_it(ana: User, signed_in: SignedIn):
    app_make(ana)
    RecoveryCodes.activate(ana)
    client = signed_in(ana)
    assert client.post("/account/second-factor/app/remove/").status_code == 302
    assert not Authenticator.objects.filter(user=ana).exists()
    assert actions().count("second_factor.removed") == 2


@pytest.mark.parametrize(
    "path", ["app/", "app/remove/", "codes/", "codes/new/", "passkeys/", "passkeys/1/remove/"]
)
def test_factors_change_only_after_a_sign_in_of_just_now(ana: User, signed_in: SignedIn, path: str):
    app_make(ana)
    client = signed_in(ana)
    stale(client)
    page = client.post(f"/account/second-factor/{path}")
    assert page.url.startswith("/account/again/")
    assert Authenticator.objects.filter(user=ana).exists()


# --- roles that need one


@pytest.fixture
def reviewers_need_one(settings: Any) -> None:
    settings.REQUIRE_SECOND_FACTOR = frozenset({"reviewer", "admin"})


@pytest.mark.usefixtures("reviewers_need_one")
def test_rita_is_led_to_set_one_up_before_anything_else(rita: User, ana: User, signed_in: SignedIn):
    client = signed_in(rita)
    for path in ("/", "/projects/", "/account/", "/p/arguments/comparisons/", "/p/arguments/"):
        assert client.get(path).url == NEEDED, path
    token = {"name": "mine", "scopes": ["read"], "days": 9}
    assert client.post("/account/tokens/", token).url == NEEDED
    assert not rita.api_tokens.exists()
    asked = client.get("/projects/", headers={"hx-request": "true"})
    assert asked.headers["HX-Redirect"] == NEEDED
    assert "Your role needs a second factor" in client.get(NEEDED).content.decode()
    app_make(rita)
    assert client.get("/projects/").status_code == 200
    assert signed_in(ana).get("/projects/").status_code == 200


@pytest.mark.usefixtures("reviewers_need_one")
def test_the_api_says_so_to_a_browser_and_tokens_go_on(rita: User, signed_in: SignedIn):
    client = signed_in(rita)
    for headers in ({}, {"authorization": "Basic cml0YTpyaXRh"}):
        refused = client.get("/api/v1/projects", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_needed")
    _, token = token_create(user=rita, name="program", scopes=["read"], days=9)
    answer = Client().get("/api/v1/projects", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200


@pytest.mark.usefixtures("reviewers_need_one")
def test_site_administrators_need_one_and_a_new_role_counts_at_once(
    olga: User, ana: User, project: Project, signed_in: SignedIn
):
    olga.memberships.all().delete()
    client, other = signed_in(olga), signed_in(ana)
    assert client.get("/projects/").status_code == 200
    User.objects.filter(pk=olga.pk).update(is_superuser=True)
    assert client.get("/projects/").url == NEEDED
    assert client.get("/admin/").url == NEEDED
    membership_set(project=project, user=ana, role="reviewer")
    assert other.get("/projects/").url == NEEDED


@pytest.mark.usefixtures("reviewers_need_one")
def test_recovery_codes_alone_are_no_second_factor(rita: User, signed_in: SignedIn):
    RecoveryCodes.activate(rita)
    assert signed_in(rita).get("/projects/").url == NEEDED


@pytest.mark.usefixtures("reviewers_need_one")
def test_who_has_to_set_one_up_can_do_it(rita: User, signed_in: SignedIn):
    client = signed_in(rita)
    stale(client)  # asked for the password first, on a page that opens
    page = client.get("/account/second-factor/app/", follow=True)
    assert page.status_code == 200
    assert page.redirect_chain[-1][0].startswith("/account/again/")
    client.post("/account/again/", {"how": "password", "password": PASSWORD})
    assert client.get("/account/second-factor/app/").status_code == 200
    assert client.get("/account/second-factor/passkeys/").status_code == 200


def test_roles_of_the_environment_are_the_roles_there_are(monkeypatch: pytest.MonkeyPatch):
    from apps.accounts.models import Role

    assert list(ROLES) == Role.values
    monkeypatch.setenv("REQUIRE_SECOND_FACTOR", "admin, site-admin")
    assert roles("REQUIRE_SECOND_FACTOR") == {"admin", "site-admin"}
    monkeypatch.setenv("REQUIRE_SECOND_FACTOR", "admins")
    with pytest.raises(BadEnvironment, match="admins"):
        roles("REQUIRE_SECOND_FACTOR")


# --- when it is lost


def test_an_administrator_resets_it_and_ends_the_sessions(
    ana: User, ada: User, signed_in: SignedIn
):
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    app_make(ana)
    hers, client = signed_in(ana), signed_in(ada)
    assert "Reset second factor" in client.get("/site/people/").content.decode()
    client.post(f"/site/people/{ana.pk}/", {"act": "second_factor"})
    assert not Authenticator.objects.filter(user=ana).exists()
    assert not BrowserSession.objects.filter(user=ana).exists()
    assert hers.get("/account/").status_code == 302
    assert {"second_factor.removed", "session.ended"} <= set(actions())


def test_so_does_a_command_for_the_last_administrator(ana: User, capsys: Any):
    app_make(ana)
    call_command("second_factor_reset", "ana")
    assert not Authenticator.objects.filter(user=ana).exists()
    with pytest.raises(CommandError, match="no second factor"):
        call_command("second_factor_reset", "ana")
    with pytest.raises(CommandError, match="Nobody"):
        call_command("second_factor_reset", "nobody")


def test_the_secret_stands_on_no_page_but_the_first(ana: User, signed_in: SignedIn):
    app_make(ana)
    client = signed_in(ana)
    assert SECRET not in client.get("/account/second-factor/").content.decode()
    assert client.get("/account/second-factor/app/").url == "/account/second-factor/app/remove/"
