"""Writes of the audit log: every change leaves an `AuditEvent`."""

from typing import Any

from apps.accounts.models import AuditEvent, Project, User


def audit_record(
    *,
    action: str,
    actor: User | None,
    project: Project | None = None,
    subject: str | User = "",
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Write one line of the audit log. `action` is entity.verb, such as `run.launched`.

    People are given as themselves, as the subject or within the details, and stored as their ids:
    names and addresses stand in the accounts alone, where they can be erased.
    """
    about = subject if isinstance(subject, User) else None
    return AuditEvent.objects.create(
        action=action,
        actor=actor,
        project=project,
        about=about,
        subject=str(about.pk) if about else str(subject)[:80],
        details={name: _stored(value) for name, value in (details or {}).items()},
    )


def _stored(value: Any) -> Any:
    if isinstance(value, User):
        return {"person": value.pk}
    return [_stored(one) for one in value] if isinstance(value, list | tuple) else value
