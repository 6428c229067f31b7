"""Alarms about people and data: every project is looked at, its figures are judged by the rules of
the kind `project` (`workers.rules.people`), and what they raise becomes incidents.

A look counts as one check of the engine: a rule is quiet again after ten looks well inside its
limit. What needs every vote is measured when votes came, or an hour passed; a look without that
takes at most 20 statements, with it at most 40, whatever the number of votes.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common import registry
from apps.common.errors import DomainError
from apps.common.json_limits import storable
from apps.common.registry import ProjectFigure
from apps.labeling.selectors.projects import newest_votes
from apps.monitoring.models import Incident, ProjectLook
from apps.monitoring.selectors.people import IS_OFF, MISSING, QUIET, RAISED, incident_key
from apps.monitoring.services.incidents import incident_open
from workers.rules.choices import guard_errors, guardrails_of
from workers.rules.engine import Engine, Violation
from workers.rules.people import PROJECT
from workers.rules.rule import OFF, Rule

log = logging.getLogger(__name__)
VOTES_AGAIN = timedelta(hours=1)  # what every vote is read for, where none came


# --- the sweep ---


def projects_look(*, now: datetime | None = None) -> int:
    """Look at every project that is not archived; returns how many. One that cannot be looked at is
    logged and holds up no other."""
    now = now or timezone.now()
    newest = newest_votes()
    done = 0
    for project in Project.objects.filter(archived_at__isnull=True).order_by("pk"):
        try:
            project_look(project=project, newest_vote=newest.get(project.pk, 0), now=now)
            done += 1
        except Exception:
            log.exception("project %s: its people and data could not be looked at", project.pk)
    return done


def project_look(*, project: Project, newest_vote: int, now: datetime) -> list[Incident]:
    """Measure, judge, and open or join incidents. Returns those that were raised now."""
    seen = ProjectLook.objects.filter(project=project).first() or ProjectLook(project=project)
    all_votes = _votes_wanted(seen, newest_vote, now)
    found = registry.project_figures(project, of_votes=False)
    found += registry.project_figures(project, of_votes=True) if all_votes else []
    with transaction.atomic():
        ProjectLook.objects.get_or_create(project=project)
        look = ProjectLook.objects.select_for_update().get(project=project)
        figures = _kept_figures(look) | {one.rule: one for one in found}
        opened = _judge(project, look, figures, now)
        if all_votes:
            look.vote_id, look.votes_read_at = newest_vote, now
        look.looked_at = now
        look.save()
    return opened


def _votes_wanted(seen: ProjectLook, newest_vote: int, now: datetime) -> bool:
    if seen.votes_read_at is None or seen.vote_id != newest_vote:
        return True
    return newest_vote > 0 and now - seen.votes_read_at >= VOTES_AGAIN


def _kept_figures(look: ProjectLook) -> dict[str, ProjectFigure]:
    """What was measured earlier and is not measured at every look."""
    names = {field.name for field in fields(ProjectFigure)} - {"rule"}
    return {
        rule: ProjectFigure(rule=rule, **{k: v for k, v in kept["figure"].items() if k in names})
        for rule, kept in look.figures.items()
    }


# --- judging ---


def _judge(
    project: Project, look: ProjectLook, figures: Mapping[str, ProjectFigure], now: datetime
) -> list[Incident]:
    engine = Engine(PROJECT, {"guards": look.choices}, per_check=1)
    engine.restore(look.memory)
    look.looks += 1
    metrics = {name: value for one in figures.values() for name, value in one.metrics.items()}
    violations = engine.check(look.looks, metrics)
    look.memory = engine.state()
    states = {
        rule.name: _state(rule, engine, figures.get(rule.name), look, now)
        for rule in guardrails_of(PROJECT, look.choices)
    }
    for name, state in states.items():
        before = look.figures.get(name, {})
        if before.get("state") == RAISED and state["state"] == QUIET:
            _clear(project, name, state["inside_since"] or state["since"])
    look.figures = states
    return [_open(project, one, figures[one.rule.name], now) for one in violations]


def _state(
    rule: Rule,
    engine: Engine,
    figure: ProjectFigure | None,
    look: ProjectLook,
    now: datetime,
) -> dict[str, Any]:
    """What is kept of a rule. `since`: when its state began; `inside_since`: of a raised one, since
    when the figure is back inside its limit."""
    figure = figure or ProjectFigure(rule=rule.name, page="", missing="not measured yet")
    memory = engine.memory_of(rule.name)
    state = RAISED if memory.get("raised") else QUIET
    if rule.action == OFF:
        state = IS_OFF
    elif state == QUIET and not figure.metrics:
        state = MISSING
    before, at = look.figures.get(rule.name, {}), now.isoformat()
    inside = before.get("inside_since") if memory.get("calm") else None
    kept = {name: value for name, value in asdict(figure).items() if name != "rule"}
    return {
        "figure": storable(kept),
        "state": state,
        "since": before["since"] if before.get("state") == state else at,
        "inside_since": (inside or at) if memory.get("calm") else None,
    }


def _open(project: Project, found: Violation, figure: ProjectFigure, now: datetime) -> Incident:
    rule = found.rule
    words = f"{figure.value}, expected {figure.expected or found.expected}"
    return incident_open(
        project=project,
        key=incident_key(project.pk, rule.name),
        link=rule.stage,
        rule=rule.name,
        title=rule.title,
        message=f"{words}, seen at {now:%Y-%m-%d %H:%M} UTC. {figure.detail}".strip(),
        severity=rule.severity,
        value=found.value,
        threshold=found.limit,
    )


def _clear(project: Project, rule: str, since: str) -> None:
    """Its incident stays open for people, and says since when the figure is back inside."""
    row = (
        Incident.objects.select_for_update()
        .filter(project=project, key=incident_key(project.pk, rule))
        .exclude(state=Incident.State.RESOLVED)
        .first()
    )
    if row is not None:
        row.entries.create(kind="state", at=timezone.now(), body={"cleared": since})


# --- choosing ---


@transaction.atomic
def alarms_change(
    *, project: Project, user: User, changes: Mapping[str, Mapping[str, Any] | None]
) -> ProjectLook:
    """Choose limits and actions: by rule `{"threshold": …, "action": "warn" | "off", "patience":
    …}`, None for the rule's own. Rules that are not named stay as they are.

    Raises `DomainError` naming rule and field; then nothing was changed.
    """
    ProjectLook.objects.get_or_create(project=project)
    look = ProjectLook.objects.select_for_update().get(project=project)
    chosen = {**look.choices}
    for name, choice in changes.items():
        chosen.pop(name, None)
        if choice is not None:
            chosen[name] = dict(choice)
    if errors := guard_errors(
        PROJECT, chosen | {name: {} for name in changes if name not in chosen}
    ):
        raise DomainError("; ".join(errors), code="bad_alarms", field="alarms")
    if chosen == look.choices:
        return look
    before, look.choices = look.choices, chosen
    for name in before.keys() | chosen.keys():
        if before.get(name) != chosen.get(name):  # another rule: it begins to count again
            look.memory.get("memory", {}).pop(name, None)
    look.save(update_fields=["choices", "memory"])
    audit_record(
        action="alarms.changed",
        actor=user,
        project=project,
        subject=project.pk,
        details={"before": before, "after": chosen},
    )
    return look
