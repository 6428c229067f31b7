"""One's sessions, ended one by one or all others, by an administrator too."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, BrowserSession, User
from apps.accounts.screens import browser_named
from apps.accounts.selectors import sessions_of
from tests.accounts.second_factors import is_signed_in, sign_in, stale
from tests.people import PASSWORD

pytestmark = pytest.mark.usefixtures("fresh_sign_in_counts")
SignedIn = Callable[[User], Client]
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML) Chrome/141.0 Safari/537.36"


def browser(user: User, agent: str = FIREFOX, address: str = "203.0.113.7") -> Client:
    client = Client(HTTP_USER_AGENT=agent, REMOTE_ADDR=address)
    assert sign_in(client, user.username).status_code == 302
    return client


def test_ana_sees_her_browsers_and_which_is_this_one(ana: User, rita: User):
    here, _, _ = browser(ana), browser(ana, CHROME, "198.51.100.4"), browser(rita)
    page = here.get("/account/sessions/")
    rows = page.context["rows"]
    assert {row["browser"] for row in rows} == {"Firefox, Linux", "Chrome, Windows"}
    assert {row["row"].address for row in rows} == {"203.0.113.7", "198.51.100.4"}
    assert [row["browser"] for row in rows if row["is_here"]] == ["Firefox, Linux"]
    assert "/account/sessions/" in here.get("/account/").content.decode()


def test_she_ends_one_and_it_is_out_with_its_next_request(ana: User):
    here, there, elsewhere = browser(ana), browser(ana, CHROME), browser(ana)
    row = BrowserSession.objects.get(session_key=there.session.session_key)
    here.post("/account/sessions/end/", {"session": row.pk})
    assert there.get("/account/").status_code == 302
    assert elsewhere.get("/account/").status_code == 200
    event = AuditEvent.objects.get(action="session.ended")
    assert (event.actor, event.about) == (ana, ana)


def test_she_ends_all_others(ana: User, rita: User):
    here, others, ritas = browser(ana), [browser(ana), browser(ana)], browser(rita)
    page = here.post("/account/sessions/end/", follow=True)
    assert "2 sessions are ended." in page.content.decode()
    assert [one.get("/account/").status_code for one in others] == [302, 302]
    assert here.get("/account/").status_code == ritas.get("/account/").status_code == 200
    assert AuditEvent.objects.filter(action="session.ended").count() == 2


@pytest.mark.parametrize("named", ["rita's", "her own", "x", "9" * 20])
def test_nobody_ends_what_is_not_an_other_one_of_theirs(ana: User, rita: User, named: str):
    here, ritas = browser(ana), browser(rita)
    key = {"rita's": ritas, "her own": here}.get(named, here).session.session_key
    row = BrowserSession.objects.get(session_key=key)
    sent = str(row.pk) if named in {"rita's", "her own"} else named
    page = here.post("/account/sessions/end/", {"session": sent})
    assert page.status_code == (302 if named == "her own" else 404)
    assert here.get("/account/").status_code == ritas.get("/account/").status_code == 200


def test_an_administrator_ends_somebodys_sessions(ana: User, ada: User, signed_in: SignedIn):
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    hers, admins = browser(ana), signed_in(ada)
    admins.post(f"/site/people/{ana.pk}/", {"act": "sessions"})
    assert hers.get("/account/").status_code == 302
    event = AuditEvent.objects.get(action="session.ended")
    assert (event.actor, event.about) == (ada, ana)
    admins.post(f"/site/people/{ada.pk}/", {"act": "sessions"})
    assert admins.get("/account/").status_code == 200  # this one stays


def test_a_new_password_ends_the_others_and_this_one_is_still_listed(ana: User):
    here, there = browser(ana), browser(ana)
    new = "another-long-phrase"
    here.post(
        "/account/password/", {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    )
    assert there.get("/account/").status_code == 302
    assert [one.session_key for one in sessions_of(ana)] == [here.session.session_key]
    assert BrowserSession.objects.filter(user=ana).count() == 1


def test_what_is_over_is_neither_listed_nor_kept(ana: User):
    gone, idle, here = browser(ana), browser(ana), browser(ana)
    gone.post("/sign-out/")
    assert BrowserSession.objects.filter(user=ana).count() == 2
    rows = BrowserSession.objects.filter(session_key=idle.session.session_key)
    rows.update(seen_at=timezone.now() - timedelta(hours=30))
    assert [one.session_key for one in sessions_of(ana)] == [here.session.session_key]
    rows.update(created_at=timezone.now() - timedelta(days=15))
    browser(ana)
    assert not rows.exists()


def test_being_seen_is_noted_again_and_sessions_of_before_appear(ana: User):
    client = browser(ana)
    BrowserSession.objects.all().delete()  # as one that began before they were kept
    session = client.session
    session["seen"] -= 301
    session.save()
    client.get("/account/")
    assert [one.session_key for one in sessions_of(ana)] == [client.session.session_key]


def test_a_user_agent_is_called_as_people_call_it():
    assert browser_named("") == ""
    assert (
        browser_named("Mozilla/5.0 (iPhone; CPU OS 18) Version/18 Safari/604") == "Safari, iPhone"
    )
    assert browser_named("Mozilla/5.0 (Windows NT 10.0) Chrome/141 Edg/141") == "Edge, Windows"
    assert browser_named("some program 1.0") == "some program 1.0"


def test_a_session_is_fresh_after_signing_in_and_not_for_ever(ana: User):
    client = browser(ana)
    assert is_signed_in(client)
    assert client.get("/account/again/?next=/account/").url == "/account/"
    stale(client)
    assert client.get("/account/again/?next=/account/").status_code == 200
