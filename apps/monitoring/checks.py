"""What `manage.py check --database default` says of alerts that would reach nobody."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DatabaseError

from apps.monitoring.selectors.incidents import channels_without_mail


@register(Tags.database)
def mail_check(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """E-mail channels without a mail server. It needs the database, so it runs only where one is
    named, as `migrate` does."""
    if not databases:
        return []
    try:
        n = channels_without_mail()
    except DatabaseError:  # before the first migration
        return []
    if not n:
        return []
    return [
        Warning(
            f"{n} e-mail channel(s) for incidents, but no mail server is configured.",
            hint="Set EMAIL_URL, see docs/settings.md.",
            id="monitoring.W001",
        )
    ]
