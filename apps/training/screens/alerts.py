"""The alerts tab: what fired, what to do about it, and where it is dealt with."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import NoReverseMatch, reverse

from apps.common.registry import playbook_url
from apps.training.guidance import rules_in_force
from apps.training.models import Alert, Run
from apps.training.screens.marks import samples_near
from workers.diagnosis.detectors import DETECTORS

_WHY = {one.rule: (one.title, one.why) for one in DETECTORS}


@dataclass(frozen=True, slots=True)
class AlertRow:
    """`title` and `advice` are empty for a rule that this version does not know."""

    alert: Alert
    tone: str
    title: str
    advice: str
    playbook: str
    incident: str
    samples: str


def alert_rows(run: Run, alerts: Sequence[Alert]) -> list[AlertRow]:
    rules = {rule.name: (rule.title, rule.advice) for rule in rules_in_force(run)}
    incidents = _incidents(run, alerts)
    rows = []
    for alert in alerts:
        title, advice = rules.get(alert.rule) or _WHY.get(alert.rule) or ("", "")
        rows.append(
            AlertRow(
                alert=alert,
                tone={"critical": "bad", "warning": "warn"}.get(alert.severity, ""),
                title=title,
                advice=advice,
                playbook=playbook_url(run.project.slug, alert.rule),
                incident=incidents.get(alert.pk, ""),
                samples=samples_near(run, alert.step),
            )
        )
    return rows


def _incidents(run: Run, alerts: Sequence[Alert]) -> dict[int, str]:
    """{alert: the page of its incident}. An app after this one keeps incidents; where it is not
    there, there are none."""
    if not alerts or not hasattr(Alert, "entry"):
        return {}
    rows = Alert.objects.filter(run=run, entry__isnull=False).values_list(
        "pk", "entry__incident_id"
    )
    try:
        return {
            pk: reverse("monitoring:incident", args=[run.project.slug, incident])
            for pk, incident in rows
        }
    except NoReverseMatch:
        return {}
