"""A directory makes, changes and takes away people by SCIM, as Okta and Entra send it."""

import json
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from tests.accounts.second_factors import sign_in
from tests.labeling.pairs import pairs_make, vote

pytestmark = pytest.mark.django_db
TOKEN = "directory-" + "x" * 30
ROOT = "/api/scim/v2"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


@pytest.fixture(autouse=True)
def _open(settings: Any) -> None:
    settings.SCIM_TOKEN = TOKEN


def ask(method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
    return Client().generic(
        method,
        f"{ROOT}/{path}",
        json.dumps(body) if body is not None else "",
        content_type="application/scim+json",
        headers={"authorization": f"Bearer {token}"},
    )


def zoe(**more: Any) -> dict[str, Any]:
    return {
        "schemas": [USER, "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],
        "userName": "zoe@example.org",
        "externalId": "00u1",
        "name": {"givenName": "Zoë", "familyName": "Quill"},
        "emails": [{"value": "z@home.example"}, {"value": "Zoe@example.org", "primary": True}],
        "active": True,
        "password": "never-kept-9",
        "title": "passed over",
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "x"},
    } | more


def made(**more: Any) -> User:
    said = ask("POST", "Users", zoe(**more))
    assert said.status_code == 201, said.content
    return User.objects.get(pk=said.json()["id"])


def replace(user: User, *operations: dict[str, Any]) -> Any:
    body = {"schemas": [PATCH], "Operations": list(operations)}
    return ask("PATCH", f"Users/{user.pk}", body)


def test_without_its_token_there_is_nothing(settings: Any, ana: User) -> None:
    assert ask("GET", "Users", token="wrong").status_code == 401
    assert ask("POST", "Users", zoe(), token="").status_code == 401
    _, token = token_create(user=ana, name="mine", scopes=["admin"], days=1)
    assert ask("GET", "Users", token=token).status_code == 401
    settings.SCIM_TOKEN = ""
    assert ask("GET", "Users", token="").status_code == 404
    assert not User.objects.filter(username="zoe@example.org").exists()


def test_a_person_is_made_found_and_described() -> None:
    user = made()
    assert (user.username, user.display_name) == ("zoe@example.org", "Zoë Quill")
    assert (user.email, user.scim_external_id) == ("zoe@example.org", "00u1")
    assert not user.has_usable_password()
    for text in ('userName eq "ZOE@example.org"', 'externalId eq "00u1"'):
        found = ask("GET", f"Users?filter={text}").json()
        assert [one["id"] for one in found["Resources"]] == [str(user.pk)]
    found = ask("GET", 'Users?filter=name.familyName eq "Quill"').json()
    assert found["Resources"][0]["name"]["givenName"] == "Zoë"
    assert ask("GET", 'Users?filter=userName eq "nobody"').json()["totalResults"] == 0
    said = ask("GET", f"Users/{user.pk}").json()
    assert (said["displayName"], said["active"], said["groups"]) == ("Zoë Quill", True, [])
    assert said["meta"]["location"] == f"{configured.SITE_URL}{ROOT}/Users/{user.pk}"
    assert said["emails"] == [{"value": "zoe@example.org", "primary": True}]
    assert AuditEvent.objects.filter(action="person.provisioned", about=user).count() == 1
    for path in ("ServiceProviderConfig", "ResourceTypes", "ResourceTypes/User", "Schemas"):
        assert ask("GET", path).status_code == 200, path


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "Replace", "path": "active", "value": "False"},  # Entra
        {"op": "replace", "value": {"active": False}},  # Okta
    ],
)
def test_whom_the_directory_takes_away_is_out_at_once(
    operation: dict[str, Any], project: Project, ana: User
) -> None:
    _, token = token_create(user=ana, name="mine", scopes=["read"], days=1)
    browser, program = Client(), {"authorization": f"Bearer {token}"}
    sign_in(browser, "ana")
    assert browser.get("/account/").status_code == 200
    assert Client().get("/api/v1/me", headers=program).status_code == 200
    assert replace(ana, operation).json()["active"] is False
    assert browser.get("/account/").status_code == 302
    assert Client().get("/api/v1/me", headers=program).status_code == 401
    assert AuditEvent.objects.filter(action="user.deactivated", about=ana).exists()
    assert replace(ana, {"op": "replace", "path": "active", "value": True}).json()["active"]


def test_names_and_addresses_are_changed_by_paths_and_as_a_whole() -> None:
    user = made()
    said = replace(user, {"op": "replace", "path": "name.familyName", "value": "Quill-Smith"})
    assert said.json()["displayName"] == "Zoë Quill-Smith", "the other half of the name stays"
    said = replace(
        user,
        {"op": "replace", "path": "displayName", "value": "Z. Q."},
        {"op": "add", "path": 'emails[type eq "work"].value', "value": "new@example.org"},
        {"op": "replace", "value": {"name.familyName": "Q", "nickName": "passed over"}},
        {"op": "remove", "path": "externalId"},
    )
    assert said.status_code == 200
    user.refresh_from_db()
    assert (user.display_name, user.email) == ("Z. Q.", "new@example.org")
    assert user.scim_external_id == ""
    said = ask("PUT", f"Users/{user.pk}", {"userName": "zq", "active": True})
    assert said.status_code == 200
    user.refresh_from_db()
    assert (user.username, user.email, user.display_name) == ("zq", "", "")


def test_a_deleted_person_is_gone_for_the_directory_and_their_votes_stay(project: Project) -> None:
    user = made()
    project.memberships.create(user=user, role="admin")
    pairs_make(project)
    vote(project, user)
    assert ask("DELETE", f"Users/{user.pk}").status_code == 204
    for method, body in (("GET", None), ("DELETE", None), ("PUT", zoe())):
        assert ask(method, f"Users/{user.pk}", body).status_code == 404
    assert ask("GET", "Users").json()["totalResults"] == 0
    user.refresh_from_db()
    assert not user.is_active
    assert user.answers.count() == 1
    assert made().pk == user.pk, "who is made again is the same person"
    user.refresh_from_db()
    assert user.is_active


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"userName": "ANA"}, 409, "called"),
        ({"emails": [{"value": "ana@example.org"}]}, 409, "e-mail"),
        ({"userName": ""}, 400, "username"),
        ({"userName": ["x"]}, 400, "userName is text"),
        ({"userName": "a\0b"}, 400, "userName is text"),
        ({"userName": "x" * 151}, 400, "username"),
        ({"emails": "nobody"}, 400, "email"),
        ({"emails": [1]}, 400, "emails is"),
        ({"active": 3}, 400, "active is"),
        ({"name": "Zoë"}, 400, "name is"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name_and_nothing_is_made(
    ana: User, more: dict[str, Any], status: int, words: str
) -> None:
    before = User.objects.count()
    said = ask("POST", "Users", zoe(**more))
    assert (said.status_code, words in said.json()["detail"]) == (status, True), said.content
    assert said.json().get("scimType") == ("uniqueness" if status == 409 else "invalidValue")
    assert User.objects.count() == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "Users", []),
        ("POST", "Users", {}),
        ("PATCH", "Users/{0}", []),
        ("PATCH", "Users/{0}", {"Operations": "x"}),
        ("PATCH", "Users/{0}", {"Operations": [{"op": "drop", "path": "active"}]}),
        ("PATCH", "Users/{0}", {"Operations": [{"op": "remove"}]}),
        ("PATCH", "Users/{0}", {"Operations": [{"op": "add", "value": 3}]}),
        ("GET", "Users?count=9999", None),
        ("GET", "Users?startIndex=0", None),
        ("GET", "Users?filter=userName", None),
    ],
)
def test_a_request_that_says_nothing_readable_is_400(
    ana: User, method: str, path: str, body: Any
) -> None:
    assert ask(method, path.format(ana.pk), body).status_code == 400


def test_the_last_administrator_stays_and_people_of_imports_are_not_seen(ana: User) -> None:
    User.objects.filter(pk=ana.pk).update(is_superuser=True)
    assert replace(ana, {"op": "replace", "value": {"active": False}}).status_code == 409
    assert ask("DELETE", f"Users/{ana.pk}").status_code == 409
    ana.refresh_from_db()
    assert ana.is_active
    old = User.objects.create(username="import-1", is_imported=True, is_active=False)
    assert ask("GET", f"Users/{old.pk}").status_code == 404
    assert ask("GET", "Users/x").status_code == 404
    assert ask("GET", 'Users?filter=userName eq "import-1"').json()["totalResults"] == 0
