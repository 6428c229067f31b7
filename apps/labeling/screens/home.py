"""What an annotator's home shows: how things stand in each project they label in.

Nothing is leased here. Why there is nothing to do is what the label screen would say
(`services.labeling_status`), not a second opinion.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.accounts.selectors import memberships_of
from apps.labeling import selectors, services
from apps.labeling.screens.label import LOOKS, Look
from apps.labeling.selectors.ratings import has_rating_tasks
from apps.labeling.services import LABELERS, NothingReason, Qualification


@dataclass(frozen=True, slots=True)
class Place:
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
    has_rating_tasks: bool

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
    places = [_place(membership, user) for membership in labels_in]
    return {
        "page_title": "My work",
        "nav": "work",
        "places": sorted(places, key=lambda place: (place.nothing is not None, not place.holds)),
        "n_today": sum(place.n_today for place in places),
        "n_total": sum(place.n_total for place in places),
        "others": [membership for membership in memberships if membership.role not in LABELERS],
    }


def _place(membership: Membership, user: User) -> Place:
    project = membership.project
    status = services.labeling_status(project=project, annotator=user)
    code = status.nothing.code if status.nothing else ""
    n_free = selectors.remaining_for(project=project, annotator=user, n_today=status.n_today)
    return Place(
        project=project,
        role=membership.get_role_display(),
        n_today=status.n_today,
        n_total=selectors.answers_count(project=project, annotator=user),
        n_left=n_free + (status.leased_until is not None),
        cap=status.eligibility.daily_cap or 0,
        leased_until=status.leased_until,
        nothing=status.nothing,
        qualification=services.qualification_of(project=project, user=user)
        if code == "qualification"
        else None,
        has_rating_tasks=has_rating_tasks(project),
    )
