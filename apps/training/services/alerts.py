"""Saying that an alert was seen."""

from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Missing
from apps.training.models import Alert, Run


def alert_acknowledge(*, run: Run, alert_id: int, user: User) -> None:
    """Mark the alert as seen by `user`; the first to do so stays. Raises `Missing`."""
    alert = Alert.objects.filter(run=run, pk=alert_id).first()
    if alert is None:
        raise Missing("The run has no such alert.", field="alert")
    seen = Alert.objects.filter(pk=alert.pk, acknowledged_at__isnull=True).update(
        acknowledged_at=timezone.now(), acknowledged_by=user
    )
    if seen:
        audit_record(
            action="alert.acknowledged",
            actor=user,
            project=run.project,
            subject=run.pk,
            details={"rule": alert.rule, "step": alert.step},
        )
