"""What became of votes after a dataset was frozen from them. Live: nothing of it is stored.

A vote's row stays for good. It stops counting when its annotator changes it (a revision supersedes
it), takes it back, or when its comparison was sent to a new round of votes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from django.db import connection

from apps.accounts.models import AuditEvent
from apps.labeling.models import Slot, Vote
from apps.snapshots.models import Snapshot

# Few votes of a project stop counting, so they are found first, each way by itself: one condition
# over both tables would join every vote with its slot.
_FOUND = """
with gone as (
  select id, comparison_id from labeling_vote
  where not is_current and project_id in (
    select project_id from snapshots_snapshot where id = any(%(snapshots)s)
  )
  union
  select v.id, v.comparison_id from labeling_slot s join labeling_vote v on v.slot_id = s.id
  where s.kind = 'former' and s.project_id in (
    select project_id from snapshots_snapshot where id = any(%(snapshots)s)
  )
)
select r.snapshot_id, r.comparison_id, r.split, g.id
from gone g join snapshots_snapshotrow r on r.comparison_id = g.comparison_id
where r.snapshot_id = any(%(snapshots)s) and r.split <> '' and r.vote_ids @> to_jsonb(g.id)
order by r.snapshot_id, r.comparison_id, g.id
"""


class Became(StrEnum):
    COUNTS = "counts"
    CHANGED = "changed"
    TAKEN_BACK = "taken back"
    EARLIER_ROUND = "earlier round"


@dataclass(frozen=True, slots=True)
class VoteState:
    """A vote as it was cast, and what it is now. `choice_now` where it was changed."""

    id: int
    comparison: int
    annotator: int
    choice: str
    cast_at: datetime
    became: Became
    choice_now: str = ""
    changed_at: datetime | None = None

    @property
    def other_answer(self) -> bool:
        """False where only strength, reasons or notes were changed."""
        return self.became is not Became.CHANGED or self.choice != self.choice_now


@dataclass(frozen=True, slots=True)
class ChangedVote:
    """A vote behind a row of a frozen file that does not count any more."""

    snapshot: str
    comparison: int
    split: str
    vote: int


def changed_votes(snapshots: Iterable[Snapshot | str]) -> list[ChangedVote]:
    """Votes behind rows of these files that were changed, taken back or put aside since."""
    ids = [s.pk if isinstance(s, Snapshot) else s for s in snapshots]
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_FOUND, {"snapshots": ids})
        return [ChangedVote(*row) for row in cursor.fetchall()]


def changed_counts(snapshots: Iterable[Snapshot | str]) -> dict[str, int]:
    """{dataset: votes behind it that do not count any more}, where there are any."""
    seen = {(one.snapshot, one.vote) for one in changed_votes(snapshots)}
    return dict(Counter(snapshot for snapshot, _ in seen))


def vote_states(votes: Collection[int]) -> Mapping[int, VoteState]:
    """By id; a vote that does not exist is left out."""
    rows = Vote.objects.filter(pk__in=votes).values_list(
        *("pk", "comparison_id", "annotator_id", "choice", "cast_at", "is_current", "slot__kind"),
        *("superseded_by__choice", "superseded_by__cast_at"),
    )
    found = {}
    for pk, pair, person, choice, at, current, kind, now, changed in rows:
        became = Became.COUNTS
        if now is not None:
            became = Became.CHANGED
        elif not current:
            became = Became.TAKEN_BACK
        elif kind == Slot.Kind.FORMER:
            became = Became.EARLIER_ROUND
        found[pk] = VoteState(pk, pair, person, choice, at, became, now or "", changed)
    return found | _with_times(found.values())


def _with_times(states: Iterable[VoteState]) -> dict[int, VoteState]:
    """Votes that were taken back, with when: the audit log knows."""
    gone = {str(state.id): state for state in states if state.became is Became.TAKEN_BACK}
    if not gone:
        return {}
    events = AuditEvent.objects.filter(action="vote.withdrawn", subject__in=gone)
    at = dict(events.values_list("subject", "at"))
    return {state.id: replace(state, changed_at=at.get(key)) for key, state in gone.items()}
