"""Closing the site for a while, and opening it again."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Maintenance, User
from apps.accounts.services.audit import audit_record
from apps.common.errors import DomainError


@transaction.atomic
def maintenance_begin(*, until: datetime, message: str = "", by: User | None = None) -> Maintenance:
    """From now on only administrators of the site are let in, and no run is given a slot; what is
    under way continues. Again: another end, another message.

    Raises `DomainError` for an end that is past."""
    if until <= timezone.now():
        raise DomainError("The end of the maintenance must lie ahead.", field="until")
    row, _ = Maintenance.objects.update_or_create(
        pk=1, defaults={"until": until, "message": message.strip()[:300]}
    )
    audit_record(action="site.closed", actor=by, details={"until": until.isoformat()})
    return row


@transaction.atomic
def maintenance_end(*, by: User | None = None) -> bool:
    """Whether there was one."""
    gone, _ = Maintenance.objects.all().delete()
    if gone:
        audit_record(action="site.opened", actor=by)
    return bool(gone)
