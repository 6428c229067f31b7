"""A project's people: adding, creating, changing, removing; and the log of it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import models
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts import identity, services
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User, token_sha256
from apps.accounts.services import token_create
from apps.common.errors import Conflict, DomainError, Refused
from tests.people import PASSWORD


def test_the_last_admin_can_be_neither_demoted_nor_removed(project, ada, emil):
    with pytest.raises(Conflict, match="last admin") as refused:
        services.membership_set(project=project, user=ada, role=Role.ENGINEER, by=ada)
    assert refused.value.code == "last_admin"
    with pytest.raises(Conflict, match="last admin"):
        services.membership_remove(project=project, user=ada, by=ada)
    services.membership_set(project=project, user=emil, role=Role.ADMIN, by=ada)
    services.membership_remove(project=project, user=ada, by=emil)
    assert not Membership.objects.filter(project=project, user=ada).exists()


def test_an_admin_who_cannot_sign_in_does_not_count_as_one(project, ada, emil):
    services.membership_set(project=project, user=emil, role=Role.ADMIN, by=ada)
    User.objects.filter(pk=emil.pk).update(is_active=False)
    with pytest.raises(Conflict, match="last admin"):
        services.membership_remove(project=project, user=ada, by=ada)


def test_the_page_says_why_the_last_admin_stays(project, ada, signed_in):
    page = signed_in(ada).post(f"/p/arguments/people/{ada.pk}/remove/")
    assert page.status_code == 422
    assert page.context["role_form"].non_field_errors()


def test_somebody_removed_has_no_way_back_in(project, ada, ana, signed_in):
    client = signed_in(ana)
    services.membership_remove(project=project, user=ana, by=ada)
    assert client.get("/p/arguments/").status_code == 404


def test_people_are_found_by_name_and_by_role(project, ada, ana, emil, signed_in):
    client = signed_in(ada)
    text = client.get("/p/arguments/people/?q=EMI").content.decode()
    assert "Emil" in text
    assert "1 person" in text
    assert "Emil" not in client.get("/p/arguments/people/?role=annotator").content.decode()
    assert "Nobody matches" in client.get("/p/arguments/people/?q=xyz").content.decode()


def test_only_who_administers_a_project_may_create_one(project, ada, emil):
    made = services.project_create(name="Second try", by=ada)
    assert made.slug == "second-try"
    assert Membership.objects.get(project=made).user == ada
    with pytest.raises(Refused):
        services.project_create(name="Third", by=emil)
    with pytest.raises(Conflict) as taken:
        services.project_create(name="Second try", slug="second-try", by=ada)
    assert taken.value.field == "slug"
    assert services.project_create(name="Second try", by=ada).slug == "second-try-2"


def test_a_weak_password_is_refused_with_the_reason(db):
    with pytest.raises(DomainError) as refused:
        services.user_create(username="nils", password="short")
    assert refused.value.field == "password"
    assert not User.objects.filter(username="nils").exists()


def test_imported_annotators_do_not_bury_the_people_who_sign_in(project, ada, signed_in):
    ghost = User.objects.create(username="w17", password="!", is_active=False, is_imported=True)
    Membership.objects.create(project=project, user=ghost, role=Role.ANNOTATOR)
    client = signed_in(ada)
    for query, shown in (("", False), ("?who=imported", True), ("?who=everybody", True)):
        text = client.get(f"/p/arguments/people/{query}").content.decode()
        assert ("w17" in text) is shown, query


# One's own account: theme, password, tokens.


def test_the_theme_is_kept_with_the_person_and_in_the_page_from_the_first_byte(ana, signed_in):
    client = signed_in(ana)
    assert 'data-theme="system"' in client.get("/account/").content.decode()
    assert client.post("/account/theme/", {"theme": "dark", "next": "/account/"}).url == "/account/"
    assert 'data-theme="dark"' in client.get("/account/").content.decode()


def test_an_unknown_theme_changes_nothing(ana, signed_in):
    signed_in(ana).post("/account/theme/", {"theme": "<script>"})
    ana.refresh_from_db()
    assert ana.theme == "system"


def test_changing_the_password_needs_the_old_one_and_keeps_this_browser_signed_in(ana, signed_in):
    client = signed_in(ana)
    new = "a-much-better-one-7"
    wrong = client.post(
        "/account/password/",
        {"old_password": "nope", "new_password1": new, "new_password2": new},
    )
    assert wrong.status_code == 422
    other = signed_in(ana)
    right = client.post(
        "/account/password/",
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )
    assert right.status_code == 302
    assert client.get("/account/").status_code == 200
    assert other.get("/account/").status_code == 302  # other browsers are signed out


def test_a_new_password_ends_every_token_of_that_person(ana, emil, signed_in):
    _, text = services.token_create(user=ana, name="notebook", scopes=["read"], days=30)
    _, other = services.token_create(user=emil, name="ci", scopes=["read"], days=30)
    new = "a-much-better-one-7"
    signed_in(ana).post(
        "/account/password/",
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )
    answers = [
        Client().get("/api/v1/me", headers={"authorization": f"Bearer {token}"}).status_code
        for token in (text, other)
    ]
    assert answers == [401, 200]
    actions = AuditEvent.objects.filter(actor=ana).values_list("action", flat=True)
    assert {"token.revoked", "user.password_changed"} <= set(actions)


def test_a_token_is_shown_once_and_kept_as_a_hash(ana, signed_in):
    client = signed_in(ana)
    page = client.post(
        "/account/tokens/", {"name": "notebook", "scopes": ["read", "label"], "days": "30"}
    )
    text = page.content.decode().split('<div class="secret"><code>')[1].split("</code>")[0]
    row = ApiToken.objects.get(user=ana)
    assert row.sha256 == token_sha256(text)
    assert row.scopes == ["label", "read"]
    assert text not in client.get("/account/").content.decode()
    assert text not in str(list(ApiToken.objects.values()))


def test_a_token_form_without_scopes_is_marked_and_makes_nothing(ana, signed_in):
    page = signed_in(ana).post("/account/tokens/", {"name": "x", "days": "9999"})
    assert page.status_code == 422
    assert set(page.context["token_form"].errors) == {"days", "scopes"}
    assert not ApiToken.objects.exists()


def test_nobody_revokes_anothers_token(ana, emil, signed_in):
    from apps.accounts.services import token_create

    token, _ = token_create(user=ana, name="x", scopes=["read"], days=1)
    assert signed_in(emil).post(f"/account/tokens/{token.pk}/revoke/").status_code == 404
    assert signed_in(ana).post(f"/account/tokens/{token.pk}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_an_email_somebody_else_has_is_refused_and_what_was_typed_is_kept(ana, emil, signed_in):
    page = signed_in(ana).post(
        "/account/profile/", {"display_name": "Ana B.", "email": "emil@example.org"}
    )
    assert page.status_code == 422
    assert 'value="Ana B."' in page.content.decode()
    ana.refresh_from_db()
    assert ana.display_name == "Ana"


# The prepared reads of every request give what the ORM would.


def values(row: models.Model) -> dict[str, Any]:
    """Every column, those included that are loaded only when asked for."""
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_a_person_read_by_statement_equals_the_one_the_orm_reads(ana: User) -> None:
    got = identity.user_get(ana.pk)
    assert values(got) == values(User.objects.get(pk=ana.pk))
    assert identity.user_get(10**9) is None


def test_a_membership_comes_with_its_project(
    project: Project, ana: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        got = identity.membership_get(user=ana, slug=project.slug)
        assert got.project.name == project.name
    assert values(got) == values(Membership.objects.get(user=ana))
    assert values(got.project) == values(Project.objects.get(pk=project.pk))


def test_nobody_is_a_member_elsewhere_or_of_an_archived_project(
    project: Project, ana: User, olga: User
) -> None:
    assert identity.membership_get(user=olga, slug=project.slug) is None
    assert identity.membership_get(user=ana, slug="no-such-project") is None
    Project.objects.update(archived_at=timezone.now())
    assert identity.membership_get(user=ana, slug=project.slug) is None


def test_a_token_comes_with_its_person_until_it_is_revoked(ana: User) -> None:
    row, text = token_create(user=ana, name="t", scopes=["label", "read"], days=1)
    got = identity.token_get(token_sha256(text))
    assert values(got) == values(ApiToken.objects.get(pk=row.pk))
    assert (got.scopes, got.user.pk, got.user.username) == (["label", "read"], ana.pk, "ana")
    ApiToken.objects.update(revoked_at=timezone.now())
    assert identity.token_get(token_sha256(text)) is None
    assert identity.token_get(token_sha256("ccd_other")) is None


def test_a_row_read_by_statement_is_saved_like_any_other(project: Project, ana: User) -> None:
    got = identity.membership_get(user=ana, slug=project.slug)
    before = got.updated_at
    got.paused_reason = "on leave"
    got.save()
    stored = Membership.objects.get(user=ana)
    assert stored.paused_reason == "on leave"
    assert stored.updated_at > before
    person = identity.user_get(ana.pk)
    person.theme = "dark"
    person.save()
    assert User.objects.get(pk=ana.pk).date_joined == ana.date_joined


def test_whoever_is_deactivated_is_signed_out_with_the_next_request(
    project: Project, ana: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ana)
    assert browser.get("/account/").status_code == 200
    User.objects.filter(pk=ana.pk).update(is_active=False)
    assert browser.get("/account/").status_code == 302
