"""Reads for those who look after annotators: who labels here, how much, and how they stand."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.models import (
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce, Greatest, Lower
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role
from apps.labeling.models import (
    Annotator,
    Guideline,
    LabelingSettings,
    Prompt,
    QualificationAttempt,
    Vote,
)
from apps.labeling.selectors import settings_get
from apps.labeling.services import LABELERS

MOST_TOPICS = 300  # to choose from on one page


@dataclass(frozen=True, slots=True)
class Readers:
    """How far the newest major version of the guidelines has been read by those who must."""

    version: int | None
    n_read: int
    n_people: int
    asked: bool

    @property
    def n_waiting(self) -> int:
        return self.n_people - self.n_read


def readers_of(*, project: Project) -> Readers:
    """Annotators and reviewers who can sign in; admins, who publish, are not asked."""
    newest = newest_major(project=project)
    people = _labelers(project).exclude(role=Role.ADMIN)
    read = Annotator.objects.filter(
        project=project, user=OuterRef("user"), acknowledged_version__gte=newest or 0
    )
    counted = people.aggregate(n=Count("id"), read=Count("id", filter=Exists(read)))
    return Readers(
        version=newest,
        n_read=counted["read"],
        n_people=counted["n"],
        asked=settings_get(project=project).acknowledge_guidelines,
    )


def newest_major(*, project: Project) -> int | None:
    """The version that everybody who labels must have acknowledged, or a later one."""
    majors = Guideline.objects.filter(project=project, is_major=True)
    return majors.aggregate(version=Max("version"))["version"]


def _labelers(project: Project) -> QuerySet[Membership]:
    return Membership.objects.filter(
        project=project, role__in=LABELERS, user__is_imported=False, user__is_active=True
    )


def imported_count(*, project: Project) -> int:
    """People of imported votes: they cannot sign in, so there is nothing to manage."""
    return Membership.objects.filter(project=project, user__is_imported=True).count()


def annotators_list(
    *, project: Project, search: str = "", state: str = "", sort: str = "name"
) -> QuerySet[Membership]:
    """Everybody who may label here, each with the columns of the admin's list.

    Added to each membership: n_today and n_votes (current answers, and those given since midnight
    UTC), last_vote, last_seen (the later of signing in and answering), acknowledged, qualified_at,
    daily_cap, topics, languages, n_attempts and attempt_state (of the last one).
    """
    rows = _with_columns(_labelers(project).select_related("user"), project)
    if search:
        rows = rows.filter(
            Q(user__username__icontains=search)
            | Q(user__display_name__icontains=search)
            | Q(user__email__icontains=search)
        )
    rows = _in_state(rows, state, project)
    name = Lower("user__username")
    order: dict[str, tuple[Any, ...]] = {
        "today": (F("n_today").desc(), name),
        "votes": (F("n_votes").desc(), name),
        "seen": (F("last_seen").desc(nulls_last=True), name),
    }
    return rows.order_by(*order.get(sort, (name,)))


def _with_columns(rows: QuerySet[Membership], project: Project) -> QuerySet[Membership]:
    votes = Vote.objects.filter(project=project, annotator=OuterRef("user")).order_by()
    votes = votes.exclude(source=Vote.Source.IMPORT)
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    annotator = Annotator.objects.filter(project=project, user=OuterRef("user"))
    attempts = QualificationAttempt.objects.filter(project=project, user=OuterRef("user"))
    last = Vote.objects.filter(project=project, annotator=OuterRef("user"))
    last = last.exclude(source=Vote.Source.IMPORT).order_by("-cast_at").values("cast_at")[:1]
    return rows.annotate(
        n_votes=_number(votes.filter(is_current=True)),
        n_today=_number(votes.filter(revision=1, cast_at__gte=midnight)),
        last_vote=Subquery(last),
        acknowledged=Coalesce(Subquery(annotator.values("acknowledged_version")), Value(0)),
        acknowledged_at=Subquery(annotator.values("acknowledged_at")),
        qualified_at=Subquery(annotator.values("qualified_at")),
        daily_cap=Subquery(annotator.values("daily_cap")),
        topics=_words(annotator, "topics"),
        languages=_words(annotator, "languages"),
        n_attempts=_number(attempts.order_by()),
        attempt_state=Subquery(attempts.order_by("-number").values("state")[:1]),
    ).annotate(last_seen=Greatest("user__last_login", "last_vote"))


def _number(rows: QuerySet[Any]) -> Coalesce:
    """How many rows there are, as a column."""
    counted = rows.values("project").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted, output_field=IntegerField()), Value(0))


def _words(annotator: QuerySet[Annotator], name: str) -> Subquery:
    field = Annotator._meta.get_field(name)
    return Subquery(annotator.values(name), output_field=ArrayField(field.base_field))


def _in_state(rows: QuerySet[Membership], state: str, project: Project) -> QuerySet[Membership]:
    if state == "paused":
        return rows.exclude(paused_reason="")
    if state == "guideline":
        return rows.exclude(role=Role.ADMIN).filter(
            acknowledged__lt=newest_major(project=project) or 0
        )
    if state == "unqualified":
        return rows.filter(role=Role.ANNOTATOR, qualified_at__isnull=True)
    if state == "limited":
        return rows.filter(
            Q(daily_cap__isnull=False) | Q(topics__len__gt=0) | Q(languages__len__gt=0)
        )
    return rows


def topics_of(*, project: Project) -> list[str]:
    """The topics of the project's prompts by name, at most MOST_TOPICS."""
    return _values(project, "topic")


def languages_of(*, project: Project) -> list[str]:
    return _values(project, "language")


def _values(project: Project, name: str) -> list[str]:
    found = Prompt.objects.filter(project=project).exclude(**{name: ""}).order_by(name)
    return list(found.values_list(name, flat=True).distinct()[:MOST_TOPICS])


@dataclass(frozen=True, slots=True)
class QualificationWords:
    """A person's qualification for the list: what it says, and in which colour."""

    text: str
    tone: str = ""
    at: datetime | None = None


def qualification_words(row: Membership, settings: LabelingSettings) -> QualificationWords:
    """`row` comes from `annotators_list`."""
    if row.qualified_at is not None:
        return QualificationWords("qualified", "good", row.qualified_at)
    if not settings.qualification_pairs or row.role != Role.ANNOTATOR:
        return QualificationWords("not asked")
    most = settings.qualification_attempts
    if row.attempt_state == QualificationAttempt.State.RUNNING:
        return QualificationWords(f"attempt {row.n_attempts} going on", "live")
    if row.n_attempts >= most:
        return QualificationWords(f"failed, {row.n_attempts} of {most} attempts used", "bad")
    if row.n_attempts:
        return QualificationWords(f"failed attempt {row.n_attempts} of {most}", "warn")
    return QualificationWords("not begun", "warn")
