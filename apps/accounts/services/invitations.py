"""Invitations: a link for each, used once; the invited choose their own password."""

import re
import secrets
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from apps.accounts.models import Invitation, Membership, Project, Role, User, token_sha256
from apps.accounts.selectors import invitation_of, person_named
from apps.accounts.services.audit import audit_record
from apps.accounts.services.memberships import membership_set
from apps.accounts.services.people import user_create
from apps.common.errors import Conflict, DomainError

MAX_DAYS = 90
MOST_AT_ONCE = 200
_BETWEEN = re.compile(r"[\s,;]+")
_IN_BRACKETS = re.compile(r"[^,;\n<>]*<([^<>]*)>")


def addresses_read(text: str) -> list[str]:
    """The e-mail addresses of a pasted list, in lower case and once each.

    They stand one a line or between commas; `Ben Ro <ben@example.org>` counts as its address. A
    word without @ is the sign-in name of somebody who has an account.
    """
    found = [one.lower() for one in _BETWEEN.split(_IN_BRACKETS.sub(r" \1 ", text)) if one]
    for number, address in enumerate(found, start=1):
        if "@" not in address and person_named(address) is not None:
            continue
        try:
            validate_email(address)
        except ValidationError:
            raise DomainError(
                f"Entry {number}, '{address[:80]}', is no e-mail address, and nobody has it as a "
                "sign-in name.",
                code="no_address",
                field="addresses",
            ) from None
    if len(found) > MOST_AT_ONCE:
        raise DomainError(
            f"{len(found)} addresses; at most {MOST_AT_ONCE} at once.", field="addresses"
        )
    return list(dict.fromkeys(found))


@transaction.atomic
def invitation_create(
    *, project: Project, role: str, email: str = "", days: int = 14, by: User | None
) -> tuple[Invitation, str]:
    """An invitation and its token, which is shown once: only its hash is kept."""
    if role not in Role.values:
        raise DomainError(f"'{role}' is no role: use {', '.join(Role.values)}.", field="role")
    if not 1 <= days <= MAX_DAYS:
        raise DomainError(f"An invitation lives 1 to {MAX_DAYS} days.", field="days")
    token = secrets.token_urlsafe(24)
    invitation = Invitation.objects.create(
        project=project,
        role=role,
        email=email.strip().lower(),
        sha256=token_sha256(token),
        expires_at=timezone.now() + timedelta(days=days),
        created_by=by,
    )
    details = {"role": role, "days": days}
    _audit(by, invitation, "invitation.created", details)
    return invitation, token


@transaction.atomic
def people_invite(
    *, project: Project, addresses: list[str], role: str, days: int = 14, by: User
) -> tuple[list[tuple[Invitation, str]], list[User]]:
    """(an invitation with its token for each address, those who were added by their sign-in name).

    An address always gets a link, also where an account has it: people write their own address into
    their account, so it proves nothing. An open invitation of the same address is replaced.
    """
    made, added = [], []
    for address in addresses:
        known = None if "@" in address else person_named(address)
        if known is not None and known.is_active:
            if not Membership.objects.filter(project=project, user=known).exists():
                membership_set(project=project, user=known, role=role, by=by)
                added.append(known)
            continue
        for old in project.invitations.filter(email=address, accepted_at=None, revoked_at=None):
            invitation_revoke(invitation=old, by=by)
        made.append(invitation_create(project=project, role=role, email=address, days=days, by=by))
    return made, added


@transaction.atomic
def invitation_renew(*, invitation: Invitation, by: User, days: int = 14) -> str:
    """A new token in place of the old one, which opens nothing from now on."""
    _lock_open(invitation)
    token = secrets.token_urlsafe(24)
    invitation.sha256 = token_sha256(token)
    invitation.expires_at = timezone.now() + timedelta(days=days)
    invitation.save(update_fields=["sha256", "expires_at", "updated_at"])
    _audit(by, invitation, "invitation.renewed", {"days": days})
    return token


@transaction.atomic
def invitation_revoke(*, invitation: Invitation, by: User) -> None:
    """The link opens nothing from now on."""
    _lock_open(invitation)
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at", "updated_at"])
    _audit(by, invitation, "invitation.revoked", {})


@transaction.atomic
def invitation_accept(*, token: str, user: User) -> Membership:
    """The person becomes a member; whoever is one already keeps their role."""
    found = invitation_of(token)
    if found is not None:
        found = Invitation.objects.select_for_update(of=("self",)).get(pk=found.pk)
    if found is None or found.accepted_at or found.revoked_at:
        raise Conflict(
            gettext("This invitation was used, was withdrawn or has expired. Ask for a new one."),
            code="invitation_over",
        )
    membership = Membership.objects.filter(project=found.project, user=user).first()
    if membership is None:
        membership = membership_set(
            project=found.project, user=user, role=found.role, by=found.created_by
        )
    found.accepted_by, found.accepted_at = user, timezone.now()
    found.save(update_fields=["accepted_by", "accepted_at", "updated_at"])
    _audit(user, found, "invitation.accepted", {"role": membership.role})
    return membership


@transaction.atomic
def invitation_join(
    *, token: str, username: str, display_name: str, email: str, password: str
) -> Membership:
    """An account for the invited, and their membership."""
    if settings.OIDC_ONLY:
        raise Conflict(
            gettext("Sign in with %(name)s first.") % {"name": settings.OIDC_NAME},
            code="password_closed",
        )
    user, _ = user_create(
        username=username, display_name=display_name, email=email, password=password
    )
    return invitation_accept(token=token, user=user)


def _lock_open(invitation: Invitation) -> None:
    row = Invitation.objects.select_for_update(of=("self",)).get(pk=invitation.pk)
    if row.accepted_at or row.revoked_at:
        raise Conflict("This invitation was used or withdrawn.", code="invitation_over")


def _audit(
    by: User | None, invitation: Invitation, action: str, details: dict[str, object]
) -> None:
    audit_record(
        action=action,
        actor=by,
        project=invitation.project,
        subject=invitation.pk,
        details=details,
    )
