"""Tokens, scopes, sessions and the shape of errors."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from apps.accounts.models import ApiToken
from apps.accounts.services import token_create, token_revoke


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
