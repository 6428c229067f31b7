"""What becomes of second factors: in the audit log, and taken from somebody who lost theirs."""

from allauth.mfa.models import Authenticator
from django.db import transaction

from apps.accounts.models import BrowserSession, User
from apps.accounts.services.audit import audit_record
from apps.accounts.services.sessions import sessions_end
from apps.accounts.throttle import is_recorded
from apps.common.errors import Conflict


def second_factor_record(*, action: str, user: User, by: User | None, kind: str) -> None:
    """`kind`: a type of allauth's authenticators."""
    audit_record(action=action, actor=by, subject=user, details={"kind": kind})


def second_factor_failed(*, user: User, address: str, failures: int) -> None:
    """`failures`: how many there were of this person, this one included."""
    if is_recorded(failures):
        audit_record(
            action="second_factor.failed",
            actor=None,
            subject=user,
            details={"address": address, "failures": failures},
        )


@transaction.atomic
def second_factor_reset(*, user: User, by: User | None) -> int:
    """Takes all of them, with the recovery codes, and ends every session; returns how many there
    were. The person signs in by password alone then, and sets up new ones."""
    found = list(Authenticator.objects.select_for_update().filter(user=user))
    if not found:
        raise Conflict(f"{user} has no second factor.", code="no_second_factor")
    for one in found:
        one.delete()
        second_factor_record(action="second_factor.removed", user=user, by=by, kind=one.type)
    sessions_end(sessions=BrowserSession.objects.filter(user=user), by=by)
    return len(found)
