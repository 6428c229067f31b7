"""All votes of one person, narrowed by what they are and by what became of their pairs."""

from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Literal

from django.db.models import F, Q, QuerySet

from apps.accounts.models import Membership, Project, User
from apps.labeling.models import Decision, Discard, LabelingSettings, Slot, Vote

_DECIDED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)
# Votes of these slots decide.
COUNTED = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@dataclass(frozen=True, slots=True)
class VoteFilter:
    """Which votes of a person. Empty fields narrow nothing.

    state: of the comparison; decision: with or against what was decided; pace: answers faster than
    the project's limit; since, until: days (UTC), both included; status: counted or discarded.
    """

    choice: str = ""
    state: str = ""
    decision: Literal["", "with", "against"] = ""
    pace: Literal["", "fast"] = ""
    since: date | None = None
    until: date | None = None
    status: Literal["", "counted", "discarded"] = ""

    def as_dict(self) -> dict[str, Any]:
        return {name: str(value) for name, value in asdict(self).items() if value}


def person_votes(
    *, project: Project, annotator: User, wanted: VoteFilter | None = None
) -> QuerySet[Vote]:
    """Their current votes, newest first, hidden repeats and audits included."""
    wanted = wanted or VoteFilter()
    found = Vote.objects.filter(project=project, annotator=annotator, is_current=True)
    if wanted.choice:
        found = found.filter(choice=wanted.choice)
    if wanted.state:
        found = found.filter(comparison__state=wanted.state)
    if wanted.decision:
        found = found.filter(comparison__decision__outcome__in=_DECIDED)
        same = Q(choice=F("comparison__decision__winner"))
        found = found.filter(same if wanted.decision == "with" else ~same)
    if wanted.pace:
        settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
        found = found.filter(active_ms__lt=settings.fast_ms)
    if wanted.since:
        found = found.filter(cast_at__date__gte=wanted.since)
    if wanted.until:
        found = found.filter(cast_at__date__lt=wanted.until + timedelta(days=1))
    if wanted.status == "counted":
        found = found.filter(slot__kind__in=COUNTED)
    elif wanted.status == "discarded":
        found = found.filter(slot__kind=Slot.Kind.DISCARD)
    return found.order_by("-cast_at", "-id")


def person_of(*, project: Project, user_id: int) -> User | None:
    """Somebody with a place or a vote in the project, imported people too."""
    person = User.objects.filter(pk=user_id).first()
    here = Membership.objects.filter(project=project, user=user_id).exists()
    voted = Vote.objects.filter(project=project, annotator=user_id).exists()
    return person if here or voted else None


def discards_of(*, project: Project, annotator: User | None = None) -> QuerySet[Discard]:
    """Newest first."""
    found = Discard.objects.filter(project=project)
    if annotator is not None:
        found = found.filter(annotator=annotator)
    return found.select_related("annotator", "by", "undone_by").order_by("-pk")
