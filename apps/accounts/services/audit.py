"""Writes of the audit log: every change leaves an `AuditEvent`."""

from typing import Any

from apps.accounts.models import AuditEvent, Project, User


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
