"""People: made, deactivated, their passwords and failed sign-ins."""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress

from allauth.account.forms import EmailAwarePasswordResetTokenGenerator
from allauth.account.utils import user_pk_to_url_str
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.urls import reverse
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext

from apps.accounts.models import ApiToken, BrowserSession, Project, User
from apps.accounts.selectors import person_named, site_has_people
from apps.accounts.services.audit import audit_record
from apps.accounts.services.sessions import sessions_end
from apps.accounts.services.tokens import token_revoke
from apps.accounts.throttle import count_up, is_recorded
from apps.common.errors import Conflict, DomainError

MOST_FAILURES_RECORDED = 200  # of all names together, in a quarter of an hour


def sign_in_failed(*, username: str, address: str, failures: int) -> None:
    """`failures`: how many there were with this name from there. A name that nobody has is not
    written down: people type their password into the wrong field."""
    if not is_recorded(failures):
        return
    if count_up("sign-in:recorded") > MOST_FAILURES_RECORDED:
        return
    known = person_named(username)
    audit_record(
        action="user.sign_in_failed",
        actor=None,
        subject=known or "",
        details={"address": address, "failures": failures, "known": known is not None},
    )


def access_refused(
    *,
    person: User | None,
    project: Project | None,
    what: str,
    status: int,
    reason: str,
    address: str,
) -> None:
    """Counted by person (or address, of strangers) and view; recorded as seldom as failed
    sign-ins, so that nobody fills the log by asking."""
    who = f"person:{person.pk}" if person else f"address:{address}"
    times = count_up(f"refused:{hashlib.sha256(f'{who}:{what}'.encode()).hexdigest()}")
    if not is_recorded(times) or count_up("refused:recorded") > MOST_FAILURES_RECORDED:
        return
    with suppress(DatabaseError):  # the answer stands, recorded or not
        audit_record(
            action="access.refused",
            actor=person,
            project=project,
            details={
                "what": what,
                "status": status,
                "reason": reason[:60],
                "times": times,
                "address": address,
            },
        )


@transaction.atomic
def profile_changed(*, user: User, fields: Sequence[str]) -> None:
    """The names of what the person changed of their own account, without the values."""
    if fields:
        audit_record(
            action="user.profile_changed",
            actor=user,
            subject=user,
            details={"fields": ", ".join(sorted(fields))},
        )


def sign_in_again_record(*, user: User, how: str) -> None:
    """The person has shown again who they are, before something that asks for it."""
    audit_record(action="user.signed_in_again", actor=user, subject=user, details={"by": how})


@transaction.atomic
def password_changed(*, user: User, by: User | None, session_key: str = "") -> int:
    """Call it in the transaction that stores a new password: who knew the old one may have made
    tokens, so all of them end; returns how many. Browsers are signed out, but for that of
    `session_key`."""
    others = BrowserSession.objects.filter(user=user).exclude(session_key=session_key)
    sessions_end(sessions=others, by=by)
    tokens = list(ApiToken.objects.select_for_update().filter(user=user, revoked_at__isnull=True))
    for token in tokens:
        token_revoke(token=token, by=by)
    audit_record(action="user.password_changed", actor=by, subject=user)
    return len(tokens)


@transaction.atomic
def user_create(
    *,
    username: str,
    display_name: str = "",
    email: str = "",
    password: str | None = None,
) -> tuple[User, str]:
    """A new person and their password: the one given, or a temporary one made here.

    Only the hash is stored, so the caller shows a temporary password at once or never.
    """
    username, email = username.strip(), email.strip().lower()
    user = User(username=username, display_name=display_name.strip(), email=email)
    try:
        if password is not None:
            validate_password(password, user)
    except ValidationError as error:
        raise DomainError(
            " ".join(error.messages), code="weak_password", field="password"
        ) from None
    password = secrets.token_urlsafe(12) if password is None else password
    user.set_password(password)
    _save(user)
    audit_record(action="user.created", actor=None, subject=user)
    return user, password


@transaction.atomic
def user_change(*, user: User, by: User | None, **fields: str) -> None:
    """Change columns of an account by another program; the names of what changed are recorded.
    Errors as `user_create`."""
    changed = {name: value for name, value in fields.items() if getattr(user, name) != value}
    if not changed:
        return
    for name, value in changed.items():
        setattr(user, name, value.strip().lower() if name == "email" else value.strip())
    _save(user)
    details = {"fields": ", ".join(sorted(changed))}
    audit_record(action="user.changed", actor=by, subject=user, details=details)


def _save(user: User) -> None:
    """Raises `DomainError` naming the field; `Conflict` where somebody has the name or address."""
    username = user.username
    if User.objects.filter(username__iexact=username).exclude(pk=user.pk).exists():
        raise _name_taken(username)
    try:
        user.full_clean()
        with transaction.atomic():
            user.save()
    except ValidationError as error:
        field, (first, *_) = next(iter(error.error_dict.items()))
        if first.code == "username_taken":
            raise _name_taken(username) from None
        if field == NON_FIELD_ERRORS:
            raise _email_taken() from None
        raise DomainError(first.messages[0], field=field) from None
    except IntegrityError as error:  # somebody took it in the same moment
        by_email = "user_email" in str(error)
        raise _email_taken() if by_email else _name_taken(username) from None


def _name_taken(username: str) -> Conflict:
    words = gettext("Somebody is called “%(name)s” already.") % {"name": username}
    return Conflict(words, code="username_taken", field="username")


def _email_taken() -> Conflict:
    words = gettext("Somebody has this e-mail address already.")
    return Conflict(words, code="email_taken", field="email")


@transaction.atomic
def first_admin_create(*, token: str, username: str, email: str, password: str) -> User:
    """The first person of an empty site, who administers it; needs the token of `set_up_token`."""
    with connection.cursor() as cursor:  # two at once are served one after the other
        cursor.execute("select pg_advisory_xact_lock(hashtext('concord set-up'))")
    if site_has_people():
        raise Conflict("This site is set up already. Sign in instead.", code="set_up_already")
    if not constant_time_compare(token.strip(), set_up_token()):
        raise DomainError(
            "This is not the token that the server printed when it started.",
            code="wrong_token",
            field="token",
        )
    user, _ = user_create(username=username, email=email, password=password)
    user.is_superuser = user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])
    audit_record(action="site.set_up", actor=user, subject=user)
    return user


def set_up_token() -> str:
    """The same in every process of the site, and worth nothing once somebody can sign in."""
    return salted_hmac("accounts.set-up", "first person", algorithm="sha256").hexdigest()[:24]


@transaction.atomic
def user_activate(*, user: User, active: bool, by: User | None) -> None:
    """A deactivated person is out with the next request, tokens too; what they did stays."""
    if user.is_imported:
        raise Conflict(f"{user} was imported and cannot sign in.", code="imported")
    if user.erased_at is not None:
        raise Conflict("They were erased and cannot sign in.", code="erased")
    if user == by:
        raise Conflict("Somebody else has to deactivate you.", code="yourself")
    if user.is_active and not active:
        _require_another_admin(user)
    if user.is_active != active:
        user.is_active = active
        user.save(update_fields=["is_active"])
        action = "user.reactivated" if active else "user.deactivated"
        audit_record(action=action, actor=by, subject=user)


@transaction.atomic
def user_rights_set(
    *,
    user: User,
    site_admin: bool,
    creates: bool,
    by: User | None,
    admin_by_claim: bool | None = None,
    creates_by_claim: bool | None = None,
) -> None:
    """Whether the person administers the site, and whether they may create projects; `…_by_claim`:
    a claim of the sign-in provider gave it, and its absence takes it back. None: as it was, of a
    right that stays, else by hand."""
    if admin_by_claim is None:
        admin_by_claim = user.admin_by_claim and site_admin == user.is_superuser
    if creates_by_claim is None:
        creates_by_claim = user.creates_by_claim and creates == user.may_create_projects
    if not site_admin:
        _require_another_admin(user)
    before = user.is_superuser, user.may_create_projects
    user.is_superuser = user.is_staff = site_admin
    user.may_create_projects = creates
    user.admin_by_claim, user.creates_by_claim = admin_by_claim, creates_by_claim
    fields = ["is_superuser", "is_staff", "may_create_projects"]
    user.save(update_fields=[*fields, "admin_by_claim", "creates_by_claim"])
    if before != (site_admin, creates):
        details = {"site_admin": site_admin, "may_create_projects": creates}
        audit_record(action="user.rights_changed", actor=by, subject=user, details=details)


def _require_another_admin(user: User) -> None:
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and not others.exists():
        raise Conflict(
            f"{user} is the last administrator of the site. Make somebody else one first.",
            code="last_admin",
        )


def password_link_make(*, user: User, by: User, project: Project | None = None) -> str:
    """The path of a page on which the person chooses a new password: once, within three days."""
    if not user.is_active:
        raise Conflict(f"{user} cannot sign in.", code="inactive")
    path = reverse(
        "account_reset_password_from_key",
        args=[user_pk_to_url_str(user), EmailAwarePasswordResetTokenGenerator().make_token(user)],
    )
    audit_record(action="user.password_link_made", actor=by, project=project, subject=user)
    return path


def set_up_line() -> str:
    """What the server prints while nobody can sign in."""
    if site_has_people():
        return ""
    path = f"{reverse('accounts:set_up')}?token={set_up_token()}"
    return f"First person: {settings.SITE_URL.rstrip('/')}{path}"
