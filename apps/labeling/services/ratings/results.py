"""What the services of rating tasks answer with."""

from dataclasses import dataclass
from datetime import datetime

from django.core.signing import BadSignature, Signer

from apps.labeling.models import Rating, RatingTask
from apps.labeling.services.results import NothingReason
from apps.labeling.texts import Messages


@dataclass(frozen=True, slots=True)
class Scale:
    """What one response is given: grades from low to high, or ranks from 1, the best, to K."""

    kind: str
    low: int
    high: int
    low_label: str
    high_label: str

    @property
    def points(self) -> range:
        return range(self.low, self.high + 1)

    @property
    def is_ranking(self) -> bool:
        return self.kind == RatingTask.Kind.RANKING

    @classmethod
    def of(cls, task: RatingTask) -> "Scale":
        return cls(task.kind, task.low, task.high, task.low_label, task.high_label)


@dataclass(frozen=True, slots=True)
class RatingLease:
    """A task in one annotator's hands; nothing tells where an answer came from.

    responses: in the order they are shown; ratings are given in that order.
    """

    slot: int
    task: int
    project: str
    annotator: int
    leased_at: datetime
    leased_until: datetime
    prompt: Messages
    responses: tuple[Messages, ...]
    scale: Scale
    n_today: int = 0  # tasks this annotator has rated here since midnight UTC

    @property
    def key(self) -> str:
        """The idempotency key the page submits with; it proves that this lease was given out."""
        stamp = int(self.leased_at.timestamp() * 1_000_000)
        return _signer(self.slot, self.annotator).sign(f"rating{self.slot}.{stamp}")


def rating_lease_was_given(key: str, *, slot: int, annotator: int) -> bool:
    """Whether `key` is one we made for this slot and this person, however long ago."""
    try:
        return _signer(slot, annotator).unsign(key).startswith(f"rating{slot}.")
    except BadSignature:
        return False


def _signer(slot: int, annotator: int) -> Signer:
    return Signer(salt=f"labeling.rating:{slot}:{annotator}")


@dataclass(frozen=True, slots=True)
class RatingResult:
    """A stored rating and the next task; `replayed`: the same submit had been stored before."""

    rating: Rating
    next: RatingLease | NothingReason | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class RatingsReport:
    """What an import of rating tasks did, in numbers of rows unless said otherwise."""

    n_rows: int
    n_created: int
    n_unchanged: int
    n_prompts: int
    n_responses: int
    n_slots: int

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
