"""Signing in and out."""

import io
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.utils import timezone

from apps.accounts import services, throttle
from apps.accounts.models import ApiToken, AuditEvent
from apps.accounts.services import people, token_create, token_revoke
from tests.people import PASSWORD

WRONG = "not-the-password"


pytestmark = pytest.mark.usefixtures("fresh_sign_in_counts")


def sign_in(client: Client, name: str, password: str, **extra: str):
    return client.post("/sign-in/", {"login": name, "password": password}, **extra)


def test_ana_signs_in_and_lands_where_she_wanted_to_go(ana, client):
    page = client.post(
        "/sign-in/?next=/account/",
        {"login": "ana", "password": PASSWORD, "next": "/account/"},
    )
    assert page.status_code == 302
    assert page.url == "/account/"


def test_a_link_to_another_host_is_not_followed_after_signing_in(ana, client):
    page = client.post(
        "/sign-in/",
        {"login": "ana", "password": PASSWORD, "next": "https://evil.example/"},
    )
    assert page.url == "/"


def test_a_wrong_password_says_so_without_telling_whether_the_name_exists(ana, client):
    known, unknown = sign_in(client, "ana", WRONG), sign_in(client, "nobody", WRONG)
    assert known.context["form"].errors == unknown.context["form"].errors
    assert known.context["form"].has_error("__all__", "username_password_mismatch")
    text = known.content.decode()
    assert 'value="ana"' in text  # what was typed is kept, but never the password
    assert WRONG not in text


def test_an_imported_annotator_cannot_sign_in(db, client):
    from apps.accounts.models import User

    User.objects.create(username="a17", password="!", is_active=False, is_imported=True)
    assert "is wrong" in sign_in(client, "a17", "!").content.decode()


def test_ten_failures_from_one_place_make_even_the_right_password_wait(ana, client):
    for _ in range(10):
        sign_in(client, "ana", WRONG)
    page = sign_in(client, "ana", PASSWORD)
    assert page.context["form"].has_error("__all__", "too_many_tries")
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
    rows = AuditEvent.objects.order_by("id").values_list("action", "actor", "about", "subject")
    assert list(rows) == [
        ("user.sign_in_failed", None, ana.pk, str(ana.pk)),
        ("user.sign_in_failed", None, None, ""),
        ("user.signed_in", ana.pk, ana.pk, str(ana.pk)),
        ("user.signed_out", ana.pk, ana.pk, str(ana.pk)),
    ]


def test_guessing_does_not_fill_the_audit_log(ana):
    for number in range(1, 101):
        services.sign_in_failed(username="ana", address="203.0.113.7", failures=number)
    for number in range(300):
        services.sign_in_failed(username=f"nobody-{number}", address="203.0.113.7", failures=1)
    assert AuditEvent.objects.count() <= people.MOST_FAILURES_RECORDED


def test_a_denial_is_one_line_with_person_address_and_reason(ana, signed_in, caplog):
    caplog.set_level("WARNING")
    with caplog.at_level("WARNING", logger="concord.denied"):
        signed_in(ana).get("/p/arguments/people/")
        Client().get("/api/v1/me", headers={"authorization": "Bearer ccd_no"})
        Client(enforce_csrf_checks=True).post("/sign-in/", {"login": "a"})
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
    assert page.templates[0].name == "403_csrf.html"


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


# Tokens, scopes, sessions and the shape of errors.


def bearer(user, *scopes: str, days: int = 1) -> dict[str, str]:
    _, text = token_create(user=user, name="test", scopes=scopes or ["read"], days=days)
    return {"authorization": f"Bearer {text}"}


def test_a_token_opens_what_its_person_may_see(ana, client):
    answer = client.get("/api/v1/me", headers=bearer(ana))
    assert answer.status_code == 200
    assert answer.json()["username"] == "ana"
    assert [p["role"] for p in answer.json()["projects"]] == ["annotator"]


def test_no_token_and_no_session_is_401_in_json(db, client):
    answer = client.get("/api/v1/me")
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("sent", ["Bearer ccd_wrong", "Bearer ", "Bearer \x00"])
def test_an_unknown_token_is_401_even_beside_a_good_session(ana, signed_in, sent):
    assert signed_in(ana).get("/api/v1/me", headers={"authorization": sent}).status_code == 401


def test_an_expired_token_says_that_it_expired(ana, client):
    headers = bearer(ana)
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = client.get("/api/v1/me", headers=headers)
    assert answer.status_code == 401
    assert "expired on" in answer.json()["message"]


def test_a_revoked_token_and_one_of_a_person_who_left_open_nothing(ana, emil, client):
    token, text = token_create(user=ana, name="x", scopes=["read"], days=1)
    token_revoke(token=token, by=ana)
    headers = {"authorization": f"Bearer {text}"}
    assert client.get("/api/v1/me", headers=headers).status_code == 401
    headers = bearer(emil)
    emil.is_active = False
    emil.save()
    assert client.get("/api/v1/me", headers=headers).status_code == 401


def test_a_scope_does_not_stretch_and_the_error_names_it(ada, client):
    answer = client.post(
        "/api/v1/projects", {"name": "New"}, "application/json", headers=bearer(ada, "read")
    )
    assert answer.status_code == 403
    assert answer.json()["code"] == "scope_missing"
    assert "'write'" in answer.json()["message"]


def test_a_scope_never_gives_more_than_the_role(emil, ana, client):
    answer = client.put(
        "/api/v1/projects/arguments/people/ana",
        {"role": "admin"},
        "application/json",
        headers=bearer(emil, "admin"),
    )
    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"


def test_last_used_is_written_but_not_at_every_call(ana, client, django_assert_num_queries):
    headers = bearer(ana)
    client.get("/api/v1/me", headers=headers)
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    client.get("/api/v1/me", headers=headers)
    assert ApiToken.objects.get().last_used_at == first


def test_a_session_may_read_and_needs_the_csrf_token_to_write(ada):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    assert client.get("/api/v1/me").status_code == 200
    refused = client.post("/api/v1/projects", {"name": "New"}, "application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
    client.get("/account/")  # the page sets the cookie
    token = next(c.value for name, c in client.cookies.items() if "csrf" in name)
    made = client.post(
        "/api/v1/projects", {"name": "New"}, "application/json", headers={"x-csrftoken": token}
    )
    assert made.status_code == 201
    assert made.json()["slug"] == "new"


def test_input_that_does_not_validate_is_422_and_names_the_field(ada, client):
    answer = client.post(
        "/api/v1/projects", {"description": "x"}, "application/json", headers=bearer(ada, "write")
    )
    assert answer.status_code == 422
    body = answer.json()
    assert (body["code"], body["field"], body["row"]) == ("invalid_input", "name", None)
    assert body["errors"][0]["field"] == "name"


def test_a_body_that_is_no_json_is_400(ada, client):
    answer = client.post(
        "/api/v1/projects", "{no", "application/json", headers=bearer(ada, "write")
    )
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid"


def test_unknown_paths_and_methods_answer_in_json(ana, client):
    assert client.get("/api/v1/nothing-here").json()["code"] == "not_found"
    answer = client.delete("/api/v1/me", headers=bearer(ana))
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_an_unexpected_error_tells_nothing_of_our_inside(ana, client, monkeypatch, caplog):
    from apps.accounts import selectors

    def broken(user):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(selectors, "memberships_of", broken)
    answer = client.get("/api/v1/me", headers=bearer(ana))
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.content.decode()
    assert "secret detail" in caplog.text


def test_every_operation_documents_its_errors(db, client):
    schema = client.get("/api/v1/openapi.json").json()
    assert schema["components"]["schemas"]["Error"]["required"] == ["code", "message"]
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            assert {"400", "401", "403", "404", "409", "422"} <= set(operation["responses"]), (
                method,
                path,
            )
            assert operation["security"], (method, path)


def test_the_reference_is_a_page_that_lists_every_operation(ana, client, signed_in):
    text = signed_in(ana).get("/api/v1/docs").content.decode()
    schema = client.get("/api/v1/openapi.json").json()
    for path in schema["paths"]:
        assert path in text


def test_the_command_prints_the_token_alone(ana, client):
    out = io.StringIO()
    call_command("token_create", "--user", "ana", "--scope", "read", "--days", "2", stdout=out)
    text = out.getvalue()
    assert text.startswith("ccd_")
    assert text.count("\n") == 1
    answer = client.get("/api/v1/me", headers={"authorization": f"Bearer {text.strip()}"})
    assert answer.json()["username"] == "ana"


@pytest.mark.parametrize(("name", "days"), [("nobody", "2"), ("ana", "0"), ("ana", "366")])
def test_the_command_refuses_what_makes_no_sense(ana, name, days):
    with pytest.raises(CommandError):
        call_command("token_create", "--user", name, "--days", days, stdout=io.StringIO())
