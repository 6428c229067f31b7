"""Approvals, overrides and exports of personal data ask again who it is, and lose nothing."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory

from apps.accounts import throttle
from apps.accounts.models import AuditEvent, User
from apps.accounts.reauthentication import MOST_KEPT, fresh_sign_in_required
from apps.accounts.services import token_create
from apps.training.models import Checkpoint
from tests.accounts.second_factors import app_make, code_of, stale
from tests.people import PASSWORD
from tests.web.access_table import TABLE, address
from tests.web.world import World, world_make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_sign_in_counts")]
SignedIn = Callable[[User], Client]
CSV = "/p/arguments/audit-log.csv"


@pytest.fixture
def old(ada: User, signed_in: SignedIn) -> Client:
    """Ada's browser, signed in an hour ago."""
    client = signed_in(ada)
    stale(client)
    return client


def test_an_export_comes_after_the_password(old: Client):
    page = old.get(CSV)
    assert page.url == "/account/again/?next=%2Fp%2Farguments%2Faudit-log.csv"
    assert "15 minutes" in old.get(page.url).content.decode()
    wrong = old.post(page.url, {"how": "password", "password": "wrong", "next": CSV})
    assert wrong.status_code == 422
    assert old.get(CSV).status_code == 302
    right = old.post("/account/again/", {"how": "password", "password": PASSWORD, "next": CSV})
    assert right.url == CSV
    assert old.get(CSV).status_code == 200
    event = AuditEvent.objects.get(action="user.signed_in_again")
    assert event.details == {"by": "password"}


def test_it_is_asked_again_after_the_minutes_of_the_setting(old: Client, settings: Any):
    settings.REAUTHENTICATE_MINUTES = 90
    assert old.get(CSV).status_code == 200


def test_the_code_of_an_app_confirms_too_and_only_of_who_has_one(old: Client, ada: User):
    refused = old.post("/account/again/", {"how": "code", "code": code_of()})
    assert refused.status_code == 422
    app_make(ada)
    assert "Confirm by code" in old.get("/account/again/").content.decode()
    assert old.post("/account/again/", {"how": "code", "code": "000000"}).status_code == 422
    assert old.post("/account/again/", {"how": "code", "code": code_of()}).status_code == 302
    assert old.get(CSV).status_code == 200


def test_guessing_there_has_to_wait_as_at_the_sign_in(old: Client):
    for _ in range(throttle.FREE_TRIES):
        old.post("/account/again/", {"how": "password", "password": "wrong"})
    page = old.post("/account/again/", {"how": "password", "password": PASSWORD})
    assert page.context["password_form"].has_error("password", "too_many_tries")


def test_another_site_is_no_place_to_go_on_to(old: Client):
    sent = {"how": "password", "password": PASSWORD, "next": "https://evil.example/"}
    assert old.post("/account/again/", sent).url == "/"


# --- what was typed


@pytest.fixture
def world(db: None) -> World:
    return world_make()


def promotion_path(world: World) -> str:
    line = next(one for one in TABLE if one.name == "evaluation:promotion_decide")
    return address(line, world)


def test_an_approval_is_kept_shown_and_sent_by_a_button(world: World, signed_in: SignedIn):
    client, path = signed_in(world.ada), promotion_path(world)
    stale(client)
    sent = {
        "decision": "approve",
        "reason": "Better <b>by far</b>,\r\n in two lines",
        "change": "0",
    }
    page = client.post(path, sent, headers={"referer": "http://testserver/p/x/?tab=1"})
    assert page.url == "/account/again/?next=%2Faccount%2Fagain%2Fsend%2F"
    assert "Nothing was sent yet" in client.get(page.url).content.decode()
    client.post(
        "/account/again/",
        {"how": "password", "password": PASSWORD, "next": "/account/again/send/"},
    )
    kept = client.get("/account/again/send/")
    text = kept.content.decode()
    assert "Better &lt;b&gt;by far&lt;/b&gt;" in text
    assert f'action="{path}"' in text
    assert 'href="/p/x/?tab=1"' in text
    assert dict(kept.context["sent"]["fields"]) == sent
    assert client.get("/account/again/send/").status_code == 200  # a reload loses nothing
    client.post(path, sent)
    assert client.get("/account/again/send/").url == "/"  # sent: it is not offered again


def test_who_may_not_do_it_is_not_asked(world: World, signed_in: SignedIn):
    client = signed_in(world.ana)
    stale(client)
    assert client.post(promotion_path(world), {"decision": "approve"}).status_code == 403


def test_a_rejection_is_not_asked(world: World, signed_in: SignedIn):
    client = signed_in(world.ada)
    stale(client)
    page = client.post(promotion_path(world), {"decision": "reject", "reason": "No"})
    assert "/account/again/" not in page.headers.get("Location", "")


def test_starting_a_run_with_an_unapproved_reward_is_asked_and_others_are_not(
    world: World, signed_in: SignedIn
):
    client = signed_in(world.emil)
    stale(client)
    path = f"/p/{world.project.slug}/runs/new/drill/"
    asked = client.post(path, {"override_reason": "we know"})
    assert asked.url.startswith("/account/again/")
    assert client.post(path, {"override_reason": " "}).status_code == 422


class _Session(dict):
    session_key = "x"


def request_of(ada: User, *, age: int, htmx: bool = False, **post: Any) -> Any:
    request = RequestFactory().post(
        "/p/x/do/?a=1", post, headers={"hx-current-url": "http://testserver/p/x/?tab=2"}
    )
    request.session = _Session(fresh_sign_in=int(time.time()) - age)
    request.user, request.htmx = ada, htmx
    return request


@fresh_sign_in_required
def view(request: Any) -> str:
    return "done"


def test_htmx_is_told_to_take_the_whole_page_there(ada: User):
    request = request_of(ada, age=3600, htmx=True, reason="because", many=["1", "2"])
    answer = view(request)
    assert answer.headers["HX-Redirect"].startswith("/account/again/?next=")
    kept = request.session["sent_before_signing_in"]
    assert kept["fields"] == [("reason", "because"), ("many", "1"), ("many", "2")]
    assert (kept["path"], kept["page"]) == ("/p/x/do/?a=1", "/p/x/?tab=2")
    assert json.dumps(kept)
    assert view(request_of(ada, age=60)) == "done"


def test_files_and_long_texts_are_not_kept_and_the_page_says_so(ada: User, old: Client):
    for more in ({"file": SimpleUploadedFile("a.txt", b"x")}, {"text": "x" * (MOST_KEPT + 1)}):
        request = request_of(ada, age=3600, **more)
        view(request)
        kept = request.session["sent_before_signing_in"]
        assert not kept["complete"]
        session = old.session
        session["sent_before_signing_in"] = kept
        session.save()
        text = old.get("/account/again/send/").content.decode()
        assert "Nothing was sent" in text
        assert 'method="post" action="/p/x/' not in text


def test_what_one_person_typed_is_not_shown_to_the_next(ada: User, rita: User, signed_in: SignedIn):
    request = request_of(ada, age=3600, reason="because")
    view(request)
    client = signed_in(rita)
    session = client.session
    session["sent_before_signing_in"] = request.session["sent_before_signing_in"]
    session.save()
    assert client.get("/account/again/send/").url == "/"


# --- the API


def test_the_api_asks_browsers_and_not_tokens(world: World, signed_in: SignedIn):
    path = f"/api/v1/projects/{world.project.slug}/stages/production/revert"
    client = signed_in(world.ada)
    client.get("/account/")
    send = {"content_type": "application/json"}
    assert client.post(path, {}, **send).json()["code"] != "sign_in_again"
    stale(client)
    refused = client.post(path, {}, **send)
    assert (refused.status_code, refused.json()["code"]) == (403, "sign_in_again")
    _, token = token_create(user=world.ada, name="ci", scopes=["approve"], days=9)
    program = Client(headers={"authorization": f"Bearer {token}"})
    assert program.post(path, {}, **send).json()["code"] != "sign_in_again"
    assert Checkpoint.objects.exists()
