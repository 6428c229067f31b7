"""Signing in and out."""

import pytest
from django.core.cache import cache
from django.test import Client

from apps.accounts import throttle
from tests.people import PASSWORD

WRONG = "not-the-password"


@pytest.fixture(autouse=True)
def _fresh_counts():
    cache.clear()
    yield
    cache.clear()


def sign_in(client: Client, name: str, password: str, **extra: str):
    return client.post("/sign-in/", {"username": name, "password": password}, **extra)


def test_ana_signs_in_and_lands_where_she_wanted_to_go(ana, client):
    page = client.post(
        "/sign-in/?next=/account/",
        {"username": "ana", "password": PASSWORD, "next": "/account/"},
    )
    assert page.status_code == 302
    assert page.url == "/account/"


def test_a_link_to_another_host_is_not_followed_after_signing_in(ana, client):
    page = client.post(
        "/sign-in/",
        {"username": "ana", "password": PASSWORD, "next": "https://evil.example/"},
    )
    assert page.url == "/"


def test_a_wrong_password_says_so_without_telling_whether_the_name_exists(ana, client):
    known = sign_in(client, "ana", WRONG).content.decode()
    unknown = sign_in(client, "nobody", WRONG).content.decode()
    assert "The name or the password is wrong." in known
    assert "The name or the password is wrong." in unknown
    assert 'value="ana"' in known  # what was typed is kept, but never the password
    assert WRONG not in known


def test_an_imported_annotator_cannot_sign_in(db, client):
    from apps.accounts.models import User

    User.objects.create(username="a17", password="!", is_active=False, is_imported=True)
    assert "is wrong" in sign_in(client, "a17", "!").content.decode()


def test_ten_failures_from_one_place_make_even_the_right_password_wait(ana, client):
    for _ in range(throttle.TRIES_PER_NAME):
        sign_in(client, "ana", WRONG)
    page = sign_in(client, "ana", PASSWORD)
    assert "Too many failed tries" in page.content.decode()
    assert "_auth_user_id" not in client.session


def test_failures_from_elsewhere_do_not_lock_ana_out(ana, client):
    for _ in range(throttle.TRIES_PER_NAME):
        sign_in(client, "ana", WRONG, REMOTE_ADDR="203.0.113.7")
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_a_success_forgets_the_failures_before_it(ana, client):
    for _ in range(throttle.TRIES_PER_NAME - 1):
        sign_in(client, "ana", WRONG)
    sign_in(client, "ana", PASSWORD)
    client.post("/sign-out/")
    sign_in(client, "ana", WRONG)
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_signing_in_works_while_the_cache_is_down(ana, client, settings):
    settings.CACHES = {
        "default": settings.CACHES["default"] | {"LOCATION": "unix:///nonexistent/redis.sock"}
    }
    assert "is wrong" in sign_in(client, "ana", WRONG).content.decode()
    assert sign_in(client, "ana", PASSWORD).status_code == 302
    assert client.get("/account/").status_code == 200


def test_signing_out_needs_a_post_and_ends_the_session(ana, signed_in):
    client = signed_in(ana)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").url == "/sign-in/"
    assert client.get("/account/").status_code == 302


def test_a_form_without_its_csrf_token_is_refused(ana):
    client = Client(enforce_csrf_checks=True)
    page = sign_in(client, "ana", PASSWORD)
    assert page.status_code == 403
    assert "This form is out of date" in page.content.decode()


def test_a_page_that_polls_is_taken_to_the_sign_in_page_as_a_whole_and_back(project, client):
    answer = client.get(
        "/p/arguments/runs/",
        headers={"hx-request": "true", "hx-current-url": "http://testserver/p/arguments/runs/?q=a"},
    )
    assert answer.headers["HX-Redirect"] == "/sign-in/?next=/p/arguments/runs/%3Fq%3Da"
    assert answer.content == b""


def test_djangos_admin_has_no_door_of_its_own(ana, client, signed_in):
    assert client.get("/admin/login/?next=/admin/").url == "/sign-in/?next=/admin/"
    assert (
        client.post("/admin/login/", {"username": "ana", "password": PASSWORD}).status_code == 302
    )
    assert "_auth_user_id" not in client.session
    assert signed_in(ana).get("/admin/login/").status_code == 403
