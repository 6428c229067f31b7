"""The prepared reads of every request give what the ORM would."""

from collections.abc import Callable
from typing import Any

from django.db import models
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from apps.accounts import identity
from apps.accounts.models import ApiToken, Membership, Project, User
from apps.accounts.scopes import token_sha256
from apps.accounts.services import token_create


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
