"""API tokens: made, shown once, revoked."""

import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import SCOPES, TOKEN_PREFIX, ApiToken, User, token_sha256
from apps.accounts.services.audit import audit_record
from apps.common.errors import DomainError

TOKEN_MAX_DAYS = 365


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
