"""People whom a directory of the organisation makes, changes and takes away (SCIM).

What it takes away is deactivated: votes stay, sign-in, sessions and tokens end. Erasing a person is
an administrator's decision (`erasure`).
"""

from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services.audit import audit_record
from apps.accounts.services.people import user_activate, user_change, user_create


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What the directory says of a person; `external_id` is the directory's own name for them."""

    username: str
    external_id: str = ""
    display_name: str = ""
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    is_active: bool = True


@transaction.atomic
def person_provision(*, said: Provisioned) -> User:
    """A new account without a password; or that of the same name which the directory had taken
    away before. Errors: `Conflict` (`username_taken`, `email_taken`)."""
    gone = User.objects.filter(
        username__iexact=said.username.strip(), deprovisioned_at__isnull=False, erased_at=None
    ).first()
    if gone is not None:
        User.objects.filter(pk=gone.pk).update(deprovisioned_at=None)
        gone.deprovisioned_at = None
        return person_change(user=gone, said=said)
    user, _ = user_create(username=said.username, display_name=said.display_name, email=said.email)
    user.set_unusable_password()
    user.save(update_fields=["password"])
    audit_record(action="person.provisioned", actor=None, subject=user)
    return person_change(user=user, said=said)


@transaction.atomic
def person_change(*, user: User, said: Provisioned) -> User:
    """What the directory says now. Errors as `person_provision`, and `Conflict` (`last_admin`)."""
    user = User.objects.select_for_update().get(pk=user.pk)
    wanted = asdict(said)
    active, wanted["scim_external_id"] = wanted.pop("is_active"), wanted.pop("external_id")
    user_change(user=user, by=None, **wanted)
    user_activate(user=user, active=active, by=None)
    return user


@transaction.atomic
def person_deprovision(*, user: User) -> None:
    """The directory takes the person away, and has them no more unless it makes them again."""
    user_activate(user=user, active=False, by=None)
    User.objects.filter(pk=user.pk).update(deprovisioned_at=timezone.now())
    audit_record(action="person.deprovisioned", actor=None, subject=user)
