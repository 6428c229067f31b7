"""What the list of projects and the first steps of one ask of labeling."""

from collections.abc import Collection
from typing import Any

from django.db import connection
from django.db.models import Count, Max, OuterRef, Q, Subquery
from django.urls import reverse

from apps.accounts.models import AuditEvent, Membership, Project
from apps.common.registry import Named
from apps.labeling.models import Comparison, Guideline, Task, Vote


def project_facts(projects: Collection[Project]) -> dict[str, dict[str, Any]]:
    """{project: {comparisons, decided, last_vote_at}}, decided: no further vote is wanted."""
    counts = (
        Comparison.objects.filter(project__in=projects)
        .values("project")
        .annotate(
            comparisons=Count("pk"),
            decided=Count("pk", filter=~Q(state=Comparison.State.OPEN)),
        )
    )
    # By people, since the index of votes is: the newest of each, and of these the newest.
    votes = Vote.objects.filter(project=OuterRef("project"), annotator=OuterRef("user"))
    newest = Subquery(votes.order_by("-cast_at").values("cast_at")[:1])
    people = Membership.objects.filter(project__in=projects).annotate(newest=newest)
    last = dict(people.values_list("project").annotate(at=Max("newest")))
    return {row["project"]: row | {"last_vote_at": last.get(row["project"])} for row in counts}


# Entered in the index of each project's votes at their end. Asked for by `project_id = …`, the
# planner walks the votes of the whole site backwards, which for a project that rests reads them
# all: with ten million votes of a neighbour 3 s in place of a millisecond.
NEWEST_VOTE = """
select newest.id from (
  select project_id, id from labeling_vote
  where (project_id, id) <= ({project}, 9223372036854775807)
  order by project_id desc, id desc limit 1
) newest where newest.project_id = {project}
"""
_NEWEST_VOTES = f"""
select p.id, v.id from accounts_project p
cross join lateral ({NEWEST_VOTE.format(project="p.id")}) v
"""  # noqa: S608 - our own text


def newest_votes() -> dict[str, int]:
    """{project: id of its newest vote}, by one look into an index for each project."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST_VOTES)
        return dict(cursor.fetchall())


def newest_vote_of(*, project: Project) -> int:
    """0 without votes."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST_VOTE.format(project="%(project)s"), {"project": project.pk})
        row = cursor.fetchone()
        return row[0] if row else 0


def has_tasks(project: Project) -> bool:
    return Task.objects.filter(project=project).exists()


def has_guidelines(project: Project) -> bool:
    return Guideline.objects.filter(project=project, created_by__isnull=False).exists()


def has_own_rule(project: Project) -> bool:
    """Whether somebody has saved the settings: a first import makes the usual ones by itself."""
    changed = AuditEvent.objects.filter(project=project, action="labeling.settings_changed")
    return changed.exists()


def comparisons_named(project: Project, subjects: Collection[str]) -> dict[str, Named]:
    """For the audit log: by their own ids, or by Concord's where they have none."""
    numbers = [int(subject) for subject in subjects if subject.isdecimal() and len(subject) < 19]
    rows = Comparison.objects.filter(
        Q(external_id__in=subjects) | Q(external_id="", pk__in=numbers), project=project
    )
    return {
        own or str(pk): Named(
            own or str(pk), reverse("labeling:comparison", args=[project.slug, pk])
        )
        for pk, own in rows.values_list("pk", "external_id")
    }
