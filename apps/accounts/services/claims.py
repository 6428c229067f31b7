"""People who sign in by the provider of OpenID Connect: their accounts, and rights by claims."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import transaction

from apps.accounts.models import BrowserSession, Membership, Project, User
from apps.accounts.services.audit import audit_record
from apps.accounts.services.memberships import membership_remove, membership_set
from apps.accounts.services.people import password_changed, user_create, user_rights_set
from apps.accounts.services.second_factor import second_factor_record
from apps.accounts.services.sessions import sessions_end
from apps.common.environment import CREATE_PROJECTS, ROLES, SITE_ADMIN, ClaimRule
from apps.common.errors import DomainError

logger = logging.getLogger(__name__)
Claims = Mapping[str, Any]
_NOT_IN_NAMES = re.compile(r"[^\w.@+-]+")


def rules_met(claims: Claims) -> list[ClaimRule]:
    """The rules of OIDC_ROLES that fit these claims."""
    return [rule for rule in settings.OIDC_ROLES if rule.value in _values(claims, rule.claim)]


@transaction.atomic
def claims_apply(*, user: User, claims: Claims) -> None:
    """Gives what the rules give, and takes back what claims gave before and no longer do. Roles and
    rights given by hand stay as they are."""
    User.objects.select_for_update().get(pk=user.pk)
    rules = rules_met(claims)
    roles: dict[str, str] = {}
    for rule in rules:
        if rule.project:
            roles[rule.project] = max(rule.right, roles.get(rule.project, ""), key=_rank)
    _roles_apply(user, roles)
    _rights_apply(user, {rule.right for rule in rules if not rule.project})


def _roles_apply(user: User, roles: Mapping[str, str]) -> None:
    projects = {one.slug: one for one in Project.objects.filter(slug__in=roles)}
    for slug in roles.keys() - projects.keys():
        logger.warning("OIDC_ROLES names the project %s, which does not exist", slug)
    memberships = {
        one.project.slug: one
        for one in Membership.objects.filter(user=user).select_related("project")
    }
    for slug, project in projects.items():
        if slug not in memberships or memberships[slug].by_claim:
            with _refusals_logged(user, slug):
                membership_set(project=project, user=user, role=roles[slug], by_claim=True)
    for slug, membership in memberships.items():
        if membership.by_claim and slug not in projects:
            with _refusals_logged(user, slug):
                membership_remove(project=membership.project, user=user)


def _rights_apply(user: User, rights: set[str]) -> None:
    admin, creates = SITE_ADMIN in rights, CREATE_PROJECTS in rights
    has_admin, has_creates = user.is_superuser, user.may_create_projects
    by_hand = has_admin and not user.admin_by_claim, has_creates and not user.creates_by_claim

    def give(is_admin: bool, by_claim: bool) -> None:
        user_rights_set(
            user=user,
            site_admin=is_admin,
            admin_by_claim=by_claim,
            creates=creates or by_hand[1],
            creates_by_claim=creates and not by_hand[1],
            by=None,
        )

    try:
        give(admin or by_hand[0], admin and not by_hand[0])
    except DomainError as error:  # the last administrator of the site
        logger.warning("claims of user %s: %s", user.pk, error.message)
        give(True, True)


class _refusals_logged:
    """The last admin stays one, whatever the claims say: the sign-in goes on."""

    def __init__(self, user: User, where: str) -> None:
        self.user, self.where = user, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, DomainError):
            return False
        logger.warning("claims of user %s in %s: %s", self.user.pk, self.where, error.message)
        return True


@transaction.atomic
def provider_person_create(*, claims: Claims) -> User:
    """An account without a password. Its address is kept where the provider has verified it and
    nobody else has it."""
    email = verified_email(claims)
    if email and User.objects.filter(email__iexact=email).exists():
        email = ""
    name = str(claims.get("name") or "")[:150]
    user, _ = user_create(username=_free_name(claims), display_name=name, email=email)
    user.set_unusable_password()
    user.save(update_fields=["password"])
    return user


@transaction.atomic
def provider_person_take_over(*, user: User) -> None:
    """An account found by its address, which whoever made it may have typed without having it: what
    they could come in by ends, and only whoever has the address keeps it."""
    user.set_unusable_password()
    user.save(update_fields=["password"])
    password_changed(user=user, by=None)
    SocialAccount.objects.filter(user=user).delete()  # the comer's own is connected afterwards
    for factor in Authenticator.objects.filter(user=user):
        factor.delete()
        second_factor_record(action="second_factor.removed", user=user, by=None, kind=factor.type)
    sessions_end(sessions=BrowserSession.objects.filter(user=user), by=None)


@transaction.atomic
def provider_disconnect(*, user: User) -> None:
    SocialAccount.objects.filter(user=user).delete()
    provider_record(action="user.provider_disconnected", user=user)


def provider_record(*, action: str, user: User | None, **details: Any) -> None:
    audit_record(action=action, actor=user, subject=user or "", details=details)


def verified_email(claims: Claims) -> str:
    """The address, where the provider says in so many words that it is verified."""
    email = claims.get("email")
    is_verified = claims.get("email_verified") is True
    return email.strip().lower() if is_verified and isinstance(email, str) else ""


def _values(claims: Claims, claim: str) -> list[str]:
    """The texts of a claim; dots lead into objects, such as `realm_access.roles`."""
    value: Any = claims.get(claim)
    if value is None:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else -1


def _free_name(claims: Claims) -> str:
    wanted = [claims.get("preferred_username"), str(claims.get("email") or "").partition("@")[0]]
    cleaned: Iterable[str] = (_NOT_IN_NAMES.sub("-", str(one or "")).strip("-") for one in wanted)
    name = next(filter(None, cleaned), "person")[:140]
    return next(one for one in _numbered(name) if not _name_is_taken(one))


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _name_is_taken(name: str) -> bool:
    return User.objects.filter(username__iexact=name).exists()
