"""An annotator's own work: their answers, and what waits for them in each project."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext

from apps.accounts.models import Membership, Project, User
from apps.accounts.selectors import memberships_of
from apps.common.registry import Use, WorkOffer, vote_traces, vote_uses, work_offers
from apps.labeling import selectors, services
from apps.labeling.models import Answer
from apps.labeling.screens.imports import due_of
from apps.labeling.screens.label import LOOKS, Look
from apps.labeling.selectors import writing as reads
from apps.labeling.services import LABELERS, NothingReason, Qualification
from apps.labeling.services.leasing import WritingLeft, writing_left
from apps.labeling.texts import excerpt

_NARROWER = {
    "noted": ~Q(rationale="") | Q(flags__len__gt=0) | Q(reasons__len__gt=0),
    "improved": Q(improvement__isnull=False),
    "changed": Q(revision__gt=1),
}
_LONGEST_CHOSEN = 90


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer in the list: `frozen_in` datasets that stay as they are hold it already. `uses`
    names them, for readers only: annotators see how many."""

    vote: Answer
    prompt: str
    side: str
    words: str
    chosen: str
    frozen_in: int
    uses: list[Use]


def answers_only(answers: QuerySet[Answer], only: str) -> QuerySet[Answer]:
    """Those with a note, reason or flag; with an improved answer; or changed since. "": all."""
    return answers.filter(_NARROWER[only]) if only else answers


def answer_rows(answers: Iterable[Answer], *, named: bool) -> list[AnswerRow]:
    """`named`: with the names of the datasets and models that hold each answer."""
    votes = list(answers)
    ids = [vote.pk for vote in votes]
    frozen = vote_uses(ids)
    uses = vote_traces(ids) if named else {}
    return [_row(vote, frozen.get(vote.pk, 0), uses.get(vote.pk, [])) for vote in votes]


def _row(vote: Answer, frozen_in: int, uses: list[Use]) -> AnswerRow:
    answered = selectors.as_answered(vote)
    chosen = {"left": answered.left, "right": answered.right}.get(answered.side)
    words = {"left": gettext("A is better"), "right": gettext("B is better")}.get(answered.side)
    return AnswerRow(
        vote=vote,
        prompt=excerpt(answered.prompt),
        side=answered.side,
        words=words or vote.get_choice_display(),
        chosen=excerpt(chosen, _LONGEST_CHOSEN) if chosen else "",
        frozen_in=frozen_in,
        uses=uses,
    )


# What an annotator's home shows: how things stand in each project they label in.
#
# Nothing is leased here. Why there is nothing to do is what the label screen would say
# (`services.labeling_status`), not a second opinion.


@dataclass(frozen=True, slots=True)
class ProjectWork:
    """One project in which a person labels.

    `nothing` says why there is no pair; None when there is one. `n_left` is how many pairs are
    left for this person, the one in hand included, counted up to `selectors.REMAINING_CAP`.
    """

    project: Project
    role: str
    n_today: int
    n_total: int
    n_left: int
    cap: int
    leased_until: datetime | None
    nothing: NothingReason | None
    qualification: Qualification | None
    due_on: date | None
    offers: list[WorkOffer]
    writing: WritingLeft | None  # where there is something to write, or to review
    n_to_review: int

    @property
    def may_write(self) -> bool:
        return bool(self.writing and (self.writing.n_held or self.writing.n_free))

    @property
    def only_writes(self) -> bool:
        """Nothing is to be labeled here, and texts are to be written or reviewed."""
        return bool(self.writing and self.nothing and self.nothing.code == "empty")

    @property
    def holds(self) -> bool:
        """A pair is in hand and can be gone on with."""
        return self.leased_until is not None and self.nothing is None

    @property
    def lapsed(self) -> bool:
        return self.leased_until is not None and self.leased_until < timezone.now()

    @property
    def n_left_today(self) -> int:
        """Under the cap of the day, where there is one."""
        return min(self.n_left, max(0, self.cap - self.n_today)) if self.cap else self.n_left

    @property
    def is_capped(self) -> bool:
        return bool(self.cap) and self.cap - self.n_today < self.n_left

    @property
    def over(self) -> bool:
        """Whether there are more than were counted."""
        return self.n_left >= selectors.REMAINING_CAP and not self.is_capped

    @property
    def look(self) -> Look | None:
        """Of the reason, where there is one."""
        return LOOKS[self.nothing.code] if self.nothing else None


def context(*, user: User) -> dict[str, Any]:
    """The context of `home.html`; projects with something to do come first."""
    memberships = memberships_of(user)
    labels_in = [membership for membership in memberships if membership.role in LABELERS]
    places = [project_work(membership, user) for membership in labels_in]
    return {
        "page_title": gettext("My work"),
        "nav": "work",
        "places": sorted(places, key=lambda place: (place.nothing is not None, not place.holds)),
        "n_today": sum(place.n_today for place in places),
        "n_total": sum(place.n_total for place in places),
        "others": [membership for membership in memberships if membership.role not in LABELERS],
    }


def project_work(membership: Membership, user: User) -> ProjectWork:
    project = membership.project
    status = services.labeling_status(project=project, annotator=user)
    code = status.nothing.code if status.nothing else ""
    writing, n_to_review = _writing(membership, user)
    n_free = selectors.remaining_for(project=project, annotator=user, n_today=status.n_today)
    return ProjectWork(
        project=project,
        role=membership.get_role_display(),
        n_today=status.n_today,
        n_total=selectors.answers_count(project=project, annotator=user)
        + reads.mine(project=project, user=user).count(),
        n_left=n_free + (status.leased_until is not None),
        cap=status.eligibility.daily_cap or 0,
        leased_until=status.leased_until,
        nothing=status.nothing,
        qualification=services.qualification_of(project=project, user=user)
        if code == "qualification"
        else None,
        due_on=due_of(project=project),
        writing=writing,
        n_to_review=n_to_review,
        offers=work_offers(project, user),
    )


def _writing(membership: Membership, user: User) -> tuple[WritingLeft | None, int]:
    """What there is to write, and how many texts of others to review; None where neither is."""
    project = membership.project
    if not reads.has_writing(project):
        return None, 0
    left = writing_left(project=project, annotator=user)
    n = reads.reviewable(project=project, user=user, role=membership.role).count()
    return (left if n or left.n_held or left.n_free else None), n
