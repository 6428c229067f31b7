"""One person's seat in one project: what keeps them from labeling, and how their queue is mixed."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from apps.accounts.models import Role
from apps.common.errors import Refused
from apps.labeling.models import LabelingSettings
from apps.labeling.services.results import NothingReason

# Engineers see where answers come from and how others voted, so they do not vote.
LABELERS = frozenset({Role.ANNOTATOR, Role.REVIEWER, Role.ADMIN})
# Reviewers judge votes anew, without knowing them; admins may too.
AUDITORS = frozenset({Role.REVIEWER, Role.ADMIN})
_DEFAULTS = LabelingSettings()

Lane = Literal["gold", "repeat", "audit", "queue"]


@dataclass(frozen=True, slots=True)
class Seat:
    """As the columns `statements.shared.STANDING_COLUMNS` say, in their order."""

    role: str | None
    paused: str | None
    guideline_due: int | None  # the first major version they have not acknowledged
    qualification_pairs: int | None
    qualified_at: datetime | None
    daily_cap: int | None
    n_today: int  # votes cast since midnight UTC
    topics: list[str] | None
    languages: list[str] | None
    lease_seconds: int
    random_share: float
    gold_share: float
    repeat_share: float
    audit_share: float
    audit_rate: float

    N_COLUMNS = 15

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> "Seat":
        """A project without settings has the defaults."""
        mix = row[9:]
        if mix[0] is None:
            names = cls.__dataclass_fields__
            mix = tuple(getattr(_DEFAULTS, name) for name in list(names)[9:])
        return cls(*row[:9], *mix)

    def after_a_vote(self) -> "Seat":
        return replace(self, n_today=self.n_today + 1)

    def closed(self) -> NothingReason | None:
        """Why this person gets no pair at all just now; None when the queue decides."""
        if self.paused:
            return NothingReason(
                "paused",
                "Your labeling is paused",
                f"An admin of this project paused it: {self.paused}",
                n_today=self.n_today,
            )
        if self.guideline_due is not None:
            return NothingReason(
                "guideline",
                "The guidelines have changed",
                "Read the current version and say so; then the next pair comes.",
                n_today=self.n_today,
            )
        if self.qualification_pairs and not self.qualified_at and self.role == Role.ANNOTATOR:
            return NothingReason(
                "qualification",
                "First a short qualification",
                f"You judge {self.qualification_pairs} "
                f"{'pair' if self.qualification_pairs == 1 else 'pairs'} whose right answer is "
                "known, and see after each why it is right. Then real work begins.",
                n_today=self.n_today,
            )
        if self.daily_cap and self.n_today >= self.daily_cap:
            return NothingReason(
                "daily_cap",
                "That is all for today",
                f"You have answered {self.n_today:,} {'pair' if self.n_today == 1 else 'pairs'} "
                "today, as many as this project takes "
                "from one person a day. More come after midnight UTC.",
                n_today=self.n_today,
            )
        return None

    def lane(self, draw: float) -> Lane:
        """Which part of the queue a hand-out comes from, by a uniform draw in [0, 1)."""
        audit_share = self.audit_share if self.role in AUDITORS else 0.0
        for lane, share in (
            ("gold", self.gold_share),
            ("repeat", self.repeat_share),
            ("audit", audit_share),
        ):
            if draw < share:
                return lane
            draw -= share
        return "queue"

    @property
    def limits(self) -> dict[str, list[str]]:
        return {"topics": self.topics or [], "languages": self.languages or []}


def role_check(role: str | None) -> None:
    if role not in LABELERS:
        raise Refused(f"Your role here is {role}, and people of that role do not label.")
