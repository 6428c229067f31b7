"""Which browsers a person is signed in with, and ending that."""

from collections.abc import Iterable
from datetime import timedelta
from importlib import import_module

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import BrowserSession, User
from apps.accounts.services.audit import audit_record


def session_seen(*, user: User, session_key: str, address: str, browser: str) -> None:
    """The person uses this session now, for the first time or again."""
    now = timezone.now()
    BrowserSession.objects.update_or_create(
        session_key=session_key,
        defaults={"user": user, "address": address[:45], "browser": browser[:300], "seen_at": now},
    )
    over = now - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    BrowserSession.objects.filter(created_at__lt=over).delete()


def session_forget(*, session_key: str | None) -> None:
    """The session ended by itself: signed out, idle, or under another key from now on."""
    BrowserSession.objects.filter(session_key=session_key or "").delete()


def sessions_drop(user: User) -> None:
    """End every session of theirs, also one that no `BrowserSession` knows, without an event."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    for row in Session.objects.filter(expire_date__gt=timezone.now()).iterator(chunk_size=1_000):
        if row.get_decoded().get(SESSION_KEY) == str(user.pk):
            store().delete(row.session_key)
    BrowserSession.objects.filter(user=user).delete()


@transaction.atomic
def sessions_end(*, sessions: Iterable[BrowserSession], by: User | None) -> int:
    """Sign these browsers out, at once; returns how many."""
    store = import_module(settings.SESSION_ENGINE).SessionStore
    ended = list(sessions)
    for one in ended:
        store().delete(one.session_key)
        one.delete()
        details = {"address": one.address}
        audit_record(action="session.ended", actor=by, subject=one.user, details=details)
    return len(ended)
