"""The API of alarms about people and data: every rule with its newest figure, and its limit."""

from datetime import datetime
from typing import Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema

from apps.accounts.api_auth import needs
from apps.accounts.models import Project
from apps.accounts.permissions import STAFF, project_for
from apps.monitoring.selectors.people import ProjectRule, project_rules
from apps.monitoring.services.people import alarms_change
from workers.rules.words import condition

router = Router(tags=["incidents"])
ALARMS = "/projects/{slug}/alarms"


class AlarmOut(Schema):
    rule: str
    title: str
    stage: str
    severity: str
    state: str = Field(description="quiet, raised, missing (not enough to judge) or off")
    since: datetime | None = Field(description="when the state began")
    inside_since: datetime | None = Field(
        description="since when a figure that was beyond its limit is back inside"
    )
    value: str
    expected: str
    detail: str = Field(description="which annotators, batches or slices")
    missing: str = Field(description="what is missing where it cannot be judged")
    fires: str
    unit: str
    limit: float
    own_limit: float = Field(description="the limit without a choice")
    action: str = Field(description="warn or off")
    incident: str = Field(description="the id of its open incident; empty without one")
    page: str = Field(description="where to act")
    playbook: str

    @classmethod
    def of(cls, one: ProjectRule) -> "AlarmOut":
        rule = one.rule
        same = ("state", "since", "inside_since", "value", "expected", "detail", "missing")
        more = ("own_limit", "incident", "page", "playbook")
        return cls(
            rule=rule.name,
            title=rule.title,
            stage=rule.stage,
            severity=rule.severity,
            fires=condition(rule),
            unit=rule.unit,
            limit=rule.limit,
            action=rule.action,
            **{name: getattr(one, name) for name in (*same, *more)},
        )


class AlarmsOut(Schema):
    looked_at: datetime | None
    items: list[AlarmOut]


class AlarmIn(Schema):
    threshold: float | None = None
    action: Literal["warn", "off"] | None = None
    patience: int | None = Field(None, description="looks in a row beyond the limit")


class AlarmsIn(Schema):
    alarms: dict[str, AlarmIn | None] = Field(
        description="by rule; null for the rule's own limit and action", max_length=100
    )


def _shown(project: Project) -> AlarmsOut:
    found = project_rules(project)
    return AlarmsOut(looked_at=found.looked_at, items=[AlarmOut.of(one) for one in found.rules])


@router.get(ALARMS, auth=needs("read"), response=AlarmsOut, summary="Alarms about people and data")
def alarms(request: HttpRequest, slug: str) -> AlarmsOut:
    """Every rule with its newest figure, its state and what is chosen of it."""
    project, _ = project_for(request.user, slug, STAFF)
    return _shown(project)


@router.patch(
    ALARMS, auth=needs("train"), response=AlarmsOut, summary="Choose limits of these alarms"
)
def alarms_set(request: HttpRequest, slug: str, payload: AlarmsIn) -> AlarmsOut:
    """A rule that is named gets exactly what is given; the others stay as they are."""
    project, _ = project_for(request.user, slug, STAFF)
    changes = {
        name: None if one is None else one.dict(exclude_none=True)
        for name, one in payload.alarms.items()
    }
    alarms_change(project=project, user=request.user, changes=changes)
    return _shown(project)
