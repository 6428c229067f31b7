"""Writes of people, roles, tokens and the audit log. Every change leaves an `AuditEvent`."""

import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from apps.accounts.models import (
    SCOPES,
    TOKEN_PREFIX,
    ApiToken,
    AuditEvent,
    Membership,
    Project,
    Role,
    User,
    token_sha256,
)
from apps.accounts.selectors import may_create_projects
from apps.accounts.throttle import count_up
from apps.common.errors import Conflict, DomainError, Refused
from apps.common.models import longest

TOKEN_MAX_DAYS = 365


def audit_record(
    *,
    action: str,
    actor: User | None,
    project: Project | None = None,
    subject: str = "",
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Write one line of the audit log. `action` is entity.verb, such as `run.launched`."""
    return AuditEvent.objects.create(
        action=action, actor=actor, project=project, subject=subject[:80], details=details or {}
    )


# Of a name's failures in a quarter of an hour these are recorded: guessing cannot flood the log.
_RECORDED_FAILURES = frozenset({1, 5, 10, 20, 50, 100})
MOST_FAILURES_RECORDED = 200  # of all names together, in a quarter of an hour


def sign_in_failed(*, username: str, address: str, failures: int) -> None:
    """`failures`: how many there were with this name from there. A name that nobody has is not
    written down: people type their password into the wrong field."""
    if failures not in _RECORDED_FAILURES:
        return
    if count_up("sign-in:recorded") > MOST_FAILURES_RECORDED:
        return
    known = User.objects.filter(username=username.strip()).exists()
    audit_record(
        action="user.sign_in_failed",
        actor=None,
        subject=username.strip() if known else "",
        details={"address": address, "failures": failures, "known": known},
    )


@transaction.atomic
def password_changed(*, user: User, by: User | None) -> int:
    """Call it in the transaction that stores a new password: who knew the old one may have made
    tokens, so all of them end. Returns how many."""
    tokens = list(ApiToken.objects.select_for_update().filter(user=user, revoked_at__isnull=True))
    for token in tokens:
        token_revoke(token=token, by=by)
    audit_record(action="user.password_changed", actor=by, subject=user.username)
    return len(tokens)


@transaction.atomic
def user_create(
    *,
    username: str,
    display_name: str = "",
    email: str = "",
    password: str | None = None,
    by: User | None = None,
    project: Project | None = None,
) -> tuple[User, str]:
    """A new person and their password: the one given, or a temporary one made here.

    Only the hash is stored, so the caller shows a temporary password at once or never.
    """
    user = User(username=username.strip(), display_name=display_name.strip(), email=email.strip())
    try:
        if password is not None:
            validate_password(password, user)
    except ValidationError as error:
        raise DomainError(
            " ".join(error.messages), code="weak_password", field="password"
        ) from None
    password = secrets.token_urlsafe(12) if password is None else password
    user.set_password(password)
    try:
        user.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        if "__all__" in field:
            raise Conflict(
                "Somebody has this e-mail address already.", code="email_taken", field="email"
            ) from None
        raise DomainError(messages[0], field=field) from None
    user.save()
    audit_record(action="user.created", actor=by, project=project, subject=user.username)
    return user, password


@transaction.atomic
def project_create(*, name: str, by: User, slug: str = "", description: str = "") -> Project:
    """A new project whose first admin is `by`."""
    if not may_create_projects(by):
        raise Refused("Only people who administer a project already may create another.")
    name = name.strip()
    slug = slug or slugify(name)[:60]
    if not name or not slug:
        raise DomainError("A project needs a name with letters or digits.", field="name")
    try:
        with transaction.atomic():
            project = Project(slug=slug, name=name, description=description, created_by=by)
            project.full_clean(validate_unique=False)
            project.save()
    except IntegrityError:
        raise Conflict(
            f"There is a project with the address '{slug}' already.", code="taken", field="slug"
        ) from None
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise DomainError(messages[0], field=field) from None
    Membership.objects.create(project=project, user=by, role=Role.ADMIN)
    audit_record(action="project.created", actor=by, project=project, subject=project.slug)
    return project


@transaction.atomic
def membership_set(
    *, project: Project, user: User, role: str, by: User | None = None
) -> Membership:
    """Give `user` the role in the project, as a newcomer or instead of the role they have."""
    if role not in Role.values:
        raise DomainError(f"'{role}' is no role: use {', '.join(Role.values)}.", field="role")
    _lock(project)
    membership = Membership.objects.filter(project=project, user=user).first()
    if membership is None:
        membership = Membership.objects.create(project=project, user=user, role=role)
        _audit_role(by, project, user, "membership.added", {"role": role})
    elif membership.role != role:
        before = membership.role
        _keep_an_admin(project, membership)
        membership.role = role
        membership.save(update_fields=["role", "updated_at"])
        _audit_role(by, project, user, "membership.changed", {"role": role, "before": before})
    return membership


@transaction.atomic
def membership_remove(*, project: Project, user: User, by: User | None = None) -> None:
    """Take the person out of the project. What they did stays, under their name."""
    _lock(project)
    membership = Membership.objects.filter(project=project, user=user).first()
    if membership is None:
        raise Conflict(f"{user} is not in this project any more.", code="not_a_member")
    _keep_an_admin(project, membership)
    membership.delete()
    _audit_role(by, project, user, "membership.removed", {"role": membership.role})


@transaction.atomic
def membership_pause(*, project: Project, user: User, reason: str, by: User | None = None) -> None:
    """The person gets no more pairs, and reads why. What they did stays, and they may sign in."""
    reason = reason.strip()
    most = longest(Membership, "paused_reason")
    if not reason:
        raise DomainError("Say why: the person reads this instead of a pair.", field="reason")
    if len(reason) > most:
        raise DomainError(f"At most {most} characters.", field="reason")
    if "\x00" in reason:
        raise DomainError("A NUL character cannot be stored.", field="reason")
    membership = _membership_lock(project, user)
    if membership.paused_reason != reason:
        membership.paused_reason = reason
        membership.save(update_fields=["paused_reason", "updated_at"])
        _audit_role(by, project, user, "membership.paused", {"reason": reason})


@transaction.atomic
def membership_resume(*, project: Project, user: User, by: User | None = None) -> None:
    """Undo a pause; for somebody who is not paused it changes nothing."""
    membership = _membership_lock(project, user)
    if membership.paused_reason:
        membership.paused_reason = ""
        membership.save(update_fields=["paused_reason", "updated_at"])
        _audit_role(by, project, user, "membership.resumed", {})


def _membership_lock(project: Project, user: User) -> Membership:
    membership = (
        Membership.objects.select_for_update(no_key=True).filter(project=project, user=user).first()
    )
    if membership is None:
        raise Conflict(f"{user} is not in this project any more.", code="not_a_member")
    return membership


def _lock(project: Project) -> None:
    """Two admins who demote each other at once are served one after the other."""
    Project.objects.select_for_update().get(pk=project.pk)


def _keep_an_admin(project: Project, leaving: Membership) -> None:
    others = Membership.objects.filter(
        project=project, role=Role.ADMIN, user__is_active=True
    ).exclude(pk=leaving.pk)
    if leaving.role == Role.ADMIN and not others.exists():
        raise Conflict(
            f"{leaving.user} is the last admin of {project.name}. Make somebody else an admin "
            "first.",
            code="last_admin",
            field="role",
        )


def _audit_role(
    by: User | None, project: Project, user: User, action: str, details: dict[str, str]
) -> None:
    audit_record(action=action, actor=by, project=project, subject=user.username, details=details)


@transaction.atomic
def token_create(
    *, user: User, name: str, scopes: Iterable[str], days: int, by: User | None = None
) -> tuple[ApiToken, str]:
    """A token and its text, which is shown once: only its hash is kept. Lives 1…365 days."""
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        problem = f"Unknown scope: {', '.join(unknown)}." if unknown else "Choose a scope."
        raise DomainError(f"{problem} There are {', '.join(SCOPES)}.", field="scopes")
    if not 1 <= days <= TOKEN_MAX_DAYS:
        raise DomainError(f"A token lives 1 to {TOKEN_MAX_DAYS} days.", field="days")
    if not user.is_active:
        raise DomainError(f"{user.username} cannot sign in, so has no tokens.", field="user")
    text = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name.strip() or "token",
        prefix=text[:12],
        sha256=token_sha256(text),
        scopes=wanted,
        expires_at=timezone.now() + timedelta(days=days),
    )
    details = {"scopes": wanted, "days": days}
    audit_record(action="token.created", actor=by or user, subject=token.prefix, details=details)
    return token, text


@transaction.atomic
def token_revoke(*, token: ApiToken, by: User | None) -> None:
    """The token opens nothing from now on."""
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at", "updated_at"])
        audit_record(action="token.revoked", actor=by, subject=token.prefix)
