"""Reads: what the rules about people and data last saw of a project."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import Project
from apps.common import registry
from apps.monitoring.models import Incident, ProjectLook
from workers.rules.choices import guardrails_of
from workers.rules.people import PROJECT
from workers.rules.rule import OFF, Rule

QUIET, RAISED, MISSING, IS_OFF = "quiet", "raised", "missing", "off"
NOT_MEASURED = "not looked at yet"
PREFIX = "project:"


@dataclass(frozen=True, slots=True)
class ProjectRule:
    """A rule with what was chosen of it, its newest figure and its state. `since`: when the state
    began; `inside_since`: since when a figure that was beyond the limit is back inside."""

    rule: Rule
    own_limit: float
    state: str
    since: datetime | None
    inside_since: datetime | None
    value: str
    expected: str
    detail: str
    missing: str
    page: str
    playbook: str
    incident: str = ""
    patience: int | None = None  # what was chosen

    @property
    def is_on(self) -> bool:
        return self.rule.action != OFF


@dataclass(frozen=True, slots=True)
class ProjectRules:
    rules: list[ProjectRule]
    looked_at: datetime | None


def incident_key(project_id: str, rule: str) -> str:
    return f"{PREFIX}{project_id}:{rule}"


def project_rules(project: Project) -> ProjectRules:
    """All of them, in the order of the table."""
    look = ProjectLook.objects.filter(project=project).first() or ProjectLook(project=project)
    rows = Incident.objects.filter(project=project, key__startswith=f"{PREFIX}{project.pk}:")
    opened = dict(rows.exclude(state=Incident.State.RESOLVED).values_list("rule", "pk"))
    limits = {rule.name: rule.limit for rule in guardrails_of(PROJECT)}
    return ProjectRules(
        [
            _rule(project, rule, look, limits[rule.name], opened.get(rule.name, ""))
            for rule in guardrails_of(PROJECT, look.choices)
        ],
        look.looked_at,
    )


def project_rule(incident: Incident) -> ProjectRule | None:
    """The rule behind an incident about people or data; None of any other."""
    if not incident.key.startswith(f"{PREFIX}{incident.project_id}:"):
        return None
    rules = project_rules(incident.project).rules
    return next((one for one in rules if one.rule.name == incident.rule), None)


def people_summary(project: Project) -> dict[str, Any]:
    """For the overview: those that are raised, and how many of each state."""
    found = project_rules(project)
    states = [one.state for one in found.rules]
    return {
        "raised": [one for one in found.rules if one.state == RAISED],
        "counts": {state: states.count(state) for state in (QUIET, RAISED, MISSING, IS_OFF)},
        "looked_at": found.looked_at,
    }


def _rule(
    project: Project, rule: Rule, look: ProjectLook, own_limit: float, incident: str
) -> ProjectRule:
    kept: dict[str, Any] = look.figures.get(rule.name, {})
    figure = kept.get("figure", {"missing": NOT_MEASURED})
    # What was chosen counts from the next look on; whether it is off is said at once.
    state = IS_OFF if rule.action == OFF else kept.get("state", MISSING)
    if state == IS_OFF and rule.action != OFF:
        state = QUIET if figure.get("metrics") else MISSING
    return ProjectRule(
        rule=rule,
        own_limit=own_limit,
        state=state,
        since=_time(kept.get("since")),
        inside_since=_time(kept.get("inside_since")),
        value=figure.get("value", ""),
        expected=figure.get("expected", ""),
        detail=figure.get("detail", ""),
        missing=figure.get("missing", ""),
        page=figure.get("page", ""),
        playbook=registry.playbook_url(project.slug, rule.name),
        incident=incident,
        patience=look.choices.get(rule.name, {}).get("patience"),
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
