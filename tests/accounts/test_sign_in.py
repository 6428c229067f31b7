"""Signing in and out."""

import time

import pytest
from django.core.cache import cache
from django.http import HttpRequest
from django.test import Client, RequestFactory

from apps.accounts import services, throttle
from apps.accounts.models import AuditEvent
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
    for _ in range(10):
        sign_in(client, "ana", WRONG)
    page = sign_in(client, "ana", PASSWORD)
    assert "Too many failed tries" in page.content.decode()
    assert "_auth_user_id" not in client.session


def test_failures_from_elsewhere_do_not_lock_ana_out(ana, client):
    for _ in range(10):
        sign_in(client, "ana", WRONG, REMOTE_ADDR="203.0.113.7")
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_a_hundred_made_up_names_lock_no_office_out(ana, client):
    for number in range(100):
        throttle.Try.of(request_of(client), f"nobody-{number}").count_failure()
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_guessing_one_name_from_many_addresses_has_to_wait(ana, client):
    for number in range(throttle.FREE_TRIES_OF_NAME):
        throttle.Try.of(request_of(client, f"203.0.113.{number}"), "ana").count_failure()
    assert "Too many" in sign_in(client, "ana", PASSWORD).content.decode()


def test_a_browser_ana_has_signed_in_with_does_not_wait_for_the_failures_of_others(ana, client):
    sign_in(client, "ana", PASSWORD)
    client.post("/sign-out/")
    for number in range(throttle.FREE_TRIES_OF_NAME):
        throttle.Try.of(request_of(Client(), f"203.0.113.{number}"), "ana").count_failure()
    for _ in range(throttle.FREE_TRIES):
        sign_in(Client(), "ana", WRONG)
    assert "Too many" in sign_in(Client(), "ana", PASSWORD).content.decode()
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_a_known_browser_waits_for_its_own_failures_and_is_known_for_its_own_names(ana, client):
    sign_in(client, "ana", PASSWORD)
    client.post("/sign-out/")
    for name in ("ana", "rita"):
        for _ in range(throttle.FREE_TRIES):
            sign_in(client, name, WRONG)
    assert "Too many" in sign_in(client, "ana", PASSWORD).content.decode()
    forged = Client()
    forged.cookies[throttle.DEVICE_COOKIE] = "WyJhbmEiXQ:1:forged"
    assert len(throttle.Try.of(request_of(forged), "ana").counts) == 3


def test_each_failure_makes_the_next_wait_longer_up_to_a_quarter_of_an_hour():
    waits = [throttle.wait_after(number, 5) for number in range(4, 12)]
    assert waits == [0, 30, 60, 120, 240, 480, 900, 900]


def request_of(client: Client, address: str = "127.0.0.1") -> HttpRequest:
    request = RequestFactory().get("/sign-in/", REMOTE_ADDR=address)
    request.COOKIES = {name: morsel.value for name, morsel in client.cookies.items()}
    return request


def test_a_success_forgets_the_failures_before_it(ana, client):
    for _ in range(throttle.FREE_TRIES - 1):
        sign_in(client, "ana", WRONG)
    sign_in(client, "ana", PASSWORD)
    client.post("/sign-out/")
    client.cookies.pop(throttle.DEVICE_COOKIE)
    sign_in(client, "ana", WRONG)
    assert sign_in(client, "ana", PASSWORD).status_code == 302


def test_signing_in_failing_and_signing_out_are_in_the_audit_log(ana, client):
    sign_in(client, "ana", WRONG)
    sign_in(client, "a-password-typed-as-name", WRONG)
    sign_in(client, "ana", PASSWORD)
    client.post("/sign-out/")
    rows = AuditEvent.objects.order_by("id").values_list("action", "actor", "subject")
    assert list(rows) == [
        ("user.sign_in_failed", None, "ana"),
        ("user.sign_in_failed", None, ""),
        ("user.signed_in", ana.pk, "ana"),
        ("user.signed_out", ana.pk, "ana"),
    ]


def test_guessing_does_not_fill_the_audit_log(ana):
    for number in range(1, 101):
        services.sign_in_failed(username="ana", address="203.0.113.7", failures=number)
    for number in range(300):
        services.sign_in_failed(username=f"nobody-{number}", address="203.0.113.7", failures=1)
    assert AuditEvent.objects.count() <= services.MOST_FAILURES_RECORDED


def test_a_denial_is_one_line_with_person_address_and_reason(ana, signed_in, caplog):
    caplog.set_level("WARNING")
    with caplog.at_level("WARNING", logger="concord.denied"):
        signed_in(ana).get("/p/arguments/people/")
        Client().get("/api/v1/me", headers={"authorization": "Bearer ccd_no"})
        Client(enforce_csrf_checks=True).post("/sign-in/", {"username": "a"})
        sign_in(Client(), "ana\n200 user=1", WRONG)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert not any(record.exc_info or "\n" in record.getMessage() for record in caplog.records)
    starts = [" ".join(line.split()[:5]) for line in lines]
    assert starts == [
        f"403 user={ana.pk} address=127.0.0.1 GET /p/arguments/people/",
        "401 user=anonymous address=127.0.0.1 GET /api/v1/me",
        "403 user=anonymous address=127.0.0.1 POST /sign-in/",
        "401 user=anonymous address=127.0.0.1 POST /sign-in/",
    ]
    assert "csrf" in lines[2]


def test_a_session_ends_after_a_day_without_a_request_and_lives_while_it_is_used(
    ana, signed_in, monkeypatch
):
    client, now = signed_in(ana), time.time()
    hour = 3600
    for later in (20 * hour, 40 * hour):
        monkeypatch.setattr("apps.accounts.middleware.time.time", lambda later=later: now + later)
        assert client.get("/account/").status_code == 200
    monkeypatch.setattr("apps.accounts.middleware.time.time", lambda: now + 65 * hour)
    assert client.get("/account/").status_code == 302


def test_a_session_ends_two_weeks_after_its_sign_in_however_busy(ana, signed_in):
    session = signed_in(ana).session
    ends = session.get_expiry_date()
    session["more"] = 1
    session.save()
    assert session.get_expiry_date() == ends


@pytest.mark.parametrize("path", ["/account/", "/p/arguments/label/", "/api/v1/me", "/p/x/people/"])
def test_pages_of_somebody_who_is_signed_in_stay_in_no_cache(path, ana, signed_in):
    for headers in ({}, {"hx-request": "true"}):
        answer = signed_in(ana).get(path, headers=headers)
        assert "no-store" in answer.headers["Cache-Control"]


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
