"""Passwords and sessions as a security standard asks for them (docs/asvs.md)."""

import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import BrowserSession, User
from tests.accounts.second_factors import sign_in, stale
from tests.people import PASSWORD

pytestmark = pytest.mark.usefixtures("fresh_sign_in_counts")
SignedIn = Callable[[User], Client]


@pytest.mark.parametrize("address", ["/sign-in/", "/account/"])
def test_password_fields_are_masked_pasted_into_and_found_by_password_managers(
    address: str, ana: User, signed_in: SignedIn
) -> None:
    client = Client() if address == "/sign-in/" else signed_in(ana)
    page = client.get(address).content.decode()
    fields = [tag for tag in re.findall(r"<input[^>]*>", page) if 'name="' in tag]
    passwords = [tag for tag in fields if re.search(r'name="[^"]*password', tag)]
    assert passwords
    for tag in passwords:
        assert 'type="password"' in tag
        assert re.search(r'autocomplete="(current|new)-password"', tag)
        assert "readonly" not in tag
    scripts = settings.BASE_DIR / "static" / "js"
    assert not [path for path in scripts.rglob("*.js") if '"paste"' in path.read_text()]


@pytest.mark.parametrize(
    "password", ["  Two blanks in front and behind  ", "ŁódźŁódź-12 Ω" + "x" * 180 + "END"]
)
def test_a_password_counts_as_it_was_typed_to_the_last_character(
    password: str, ana: User, signed_in: SignedIn
) -> None:
    form = {"old_password": PASSWORD, "new_password1": password, "new_password2": password}
    assert signed_in(ana).post("/account/password/", form).status_code == 302
    for wrong in (password.strip(), password[:-1], password.lower()):
        if wrong != password:
            assert sign_in(Client(), "ana", wrong).status_code != 302
    assert sign_in(Client(), "ana", password).status_code == 302


def test_a_sign_in_makes_a_new_session(ana: User) -> None:
    client = Client()
    client.get("/sign-in/")
    planted = client.session  # as somebody would have who was given one
    planted["planted"] = 1
    planted.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = planted.session_key
    assert sign_in(client, "ana").status_code == 302
    assert client.session.session_key != planted.session_key
    client.cookies[settings.SESSION_COOKIE_NAME] = planted.session_key
    assert client.get("/account/").status_code == 302


def test_every_page_has_a_button_to_sign_out(ana: User, signed_in: SignedIn) -> None:
    client = signed_in(ana)
    for address in ("/account/", "/p/arguments/label/", "/projects/"):
        assert 'action="/sign-out/"' in client.get(address, follow=True).content.decode()


def test_a_new_address_for_mails_and_the_end_of_a_session_need_a_sign_in_of_just_now(
    ana: User,
) -> None:
    here, there = Client(), Client()
    for client in (here, there):
        sign_in(client, "ana")
    stale(here)
    profile = {"display_name": "Ana", "email": ana.email, "language": "", "time_zone": ""}
    assert here.post("/account/profile/", profile).url == "/account/"
    asked = here.post("/account/profile/", profile | {"email": "taken@example.org"})
    assert asked.url.startswith("/account/again/")
    row = BrowserSession.objects.get(session_key=there.session.session_key)
    asked = here.post("/account/sessions/end/", {"session": row.pk})
    assert asked.url.startswith("/account/again/")
    ana.refresh_from_db()
    assert ana.email == "ana@example.org"
    assert there.get("/account/").status_code == 200
