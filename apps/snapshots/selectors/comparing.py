"""What changed between two frozen datasets of votes: rows added, removed, flipped, moved.

Every comparison has one fate in a dataset (a row of a file, or left out for a reason), and one more
where held-out annotators' votes on it form rows of their own. The two fates of a comparison are
joined in the database: both datasets are frozen, so their answer never changes.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import connection

from apps.accounts.models import AuditEvent, Project
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import rows_named
from apps.labeling.models import Slot, Vote
from apps.labeling.texts import excerpt
from apps.snapshots.models import UNDECIDED, Snapshot
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, PRIVATE_SPLITS

# ruff: noqa: S608 - what is pasted into the statements is written in this file


# A row may be flipped and moved at once: these overlap, but added, removed and left out do not.
CHANGES = {
    "added": "Added",
    "removed": "Removed",
    "flipped": "Winner flipped",
    "moved": "Other split",
    "confidence": "Other confidence",
    "left_out": "Left out for another reason",
}
_KINDS = (Snapshot.Kind.PREFERENCES, Snapshot.Kind.UNPAIRED)
# What a model learns from, or is chosen by.
_LEARNED = ("train", "smoke", "dev")

_BOTH = """
    with o as (
      select comparison_id, split = %(held)s as held, split, winner,
             coalesce(confidence, share) as confidence, vote_ids, dropped_because
      from snapshots_snapshotrow where snapshot_id = %(old)s
    ), n as (
      select comparison_id, split = %(held)s as held, split, winner,
             coalesce(confidence, share) as confidence, vote_ids, dropped_because
      from snapshots_snapshotrow where snapshot_id = %(new)s
    ), both_sides as (
      select coalesce(o.comparison_id, n.comparison_id) as comparison_id,
             coalesce(o.held, n.held) as held,
             o.split as old_split, n.split as new_split,
             o.winner as old_winner, n.winner as new_winner,
             o.confidence as old_confidence, n.confidence as new_confidence,
             o.vote_ids as old_votes, n.vote_ids as new_votes,
             o.dropped_because as old_reason, n.dropped_because as new_reason
      from o full join n on o.comparison_id = n.comparison_id and o.held = n.held
    ), told as (
      select *,
             coalesce(old_split, '') = '' and coalesce(new_split, '') <> '' as added,
             coalesce(old_split, '') <> '' and coalesce(new_split, '') = '' as removed,
             coalesce(old_split, '') <> '' and coalesce(new_split, '') <> '' as kept
      from both_sides
    ), d as (
      select *,
             kept and old_winner <> new_winner as flipped,
             kept and old_split <> new_split as moved,
             kept and abs(coalesce(old_confidence, -1) - coalesce(new_confidence, -1)) > 1e-9
               as confidence,
             not (added or removed or kept)
               and old_reason is distinct from new_reason as left_out
      from told
    )
"""
_ANY = " or ".join(CHANGES)


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a comparison in one dataset. `split` is empty where it was left out."""

    split: str
    winner: str
    confidence: float | None
    votes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """A comparison whose fate differs; `before` or `after` is None where it was in neither a file
    nor left out: it had not been imported yet, or nobody held out had voted on it."""

    comparison: int
    name: str
    prompt: str
    held: bool
    what: tuple[str, ...]
    before: Fate | None
    after: Fate | None

    @property
    def came(self) -> tuple[int, ...]:
        """Votes behind the new row that are not behind the old one."""
        return _without(self.after, self.before)

    @property
    def gone(self) -> tuple[int, ...]:
        return _without(self.before, self.after)


@dataclass(frozen=True, slots=True)
class DiffSummary:
    """Counts of comparisons. `counts` by CHANGES; `same`: in both files, with nothing changed.

    added_from and removed_to: what they were before, or are now, with counts; moves: (old split,
    new split, n); crossed: moves between what a model learns from and what it is measured on.
    """

    counts: dict[str, int]
    kept: int
    same: int
    added_from: list[tuple[str, int]]
    removed_to: list[tuple[str, int]]
    moves: list[tuple[str, str, int]]

    @property
    def crossed(self) -> int:
        return sum(n for old, new, n in self.moves if (old in _LEARNED) != (new in _LEARNED))

    @property
    def changed(self) -> bool:
        return any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFilter:
    """Which changes to list; empty: all. `split` is that of either side."""

    change: str = ""
    split: str = ""
    search: str = ""


def comparable(*, project: Project) -> list[Snapshot]:
    """Datasets that can be compared, newest first."""
    return list(
        Snapshot.objects.filter(project=project, kind__in=_KINDS, state=Snapshot.State.FROZEN)
        .exclude(recipe__has_any_keys=UNDECIDED)
        .order_by("-created_at")
    )


def _of_votes(snapshot: Snapshot) -> bool:
    return snapshot.kind in _KINDS and snapshot.is_decided


def one_before(snapshot: Snapshot) -> Snapshot | None:
    """The dataset of the same project and kind frozen before this one."""
    if not _of_votes(snapshot) or snapshot.state != Snapshot.State.FROZEN:
        return None
    earlier = Snapshot.objects.filter(
        project=snapshot.project_id,
        kind=snapshot.kind,
        state=Snapshot.State.FROZEN,
        created_at__lt=snapshot.created_at,
    )
    return earlier.order_by("-created_at").first()


def pair_checked(*, old: Snapshot, new: Snapshot) -> None:
    """`DomainError` or `Conflict` where these two cannot be compared."""
    if old.pk == new.pk:
        raise DomainError("Choose two different datasets.", field="new")
    for snapshot, name in ((old, "old"), (new, "new")):
        if snapshot.state != Snapshot.State.FROZEN:
            raise Conflict("Only frozen datasets can be compared.", code="not_frozen", field=name)
        if not _of_votes(snapshot):
            raise DomainError(
                "Only datasets frozen from votes can be compared row by row: demonstrations and "
                "prompts have no decisions.",
                field=name,
            )


def compare_summary(*, old: Snapshot, new: Snapshot) -> DiffSummary:
    """How many comparisons changed, and how."""
    pair_checked(old=old, new=new)
    columns = ", ".join(f"count(*) filter (where {name})" for name in CHANGES)
    counted, *_ = _select(
        f"select {columns}, count(*) filter (where kept), "
        f"count(*) filter (where kept and not ({_ANY})) from d",
        old,
        new,
    )
    *changes, kept, same = counted
    return DiffSummary(
        counts=dict(zip(CHANGES, changes, strict=True)),
        kept=kept,
        same=same,
        added_from=_reasons(
            "select case when old_split is null then '' else old_reason end, count(*) from d "
            "where added group by 1 order by 2 desc, 1",
            "not there before",
            old,
            new,
        ),
        removed_to=_reasons(
            "select case when new_split is null then '' else new_reason end, count(*) from d "
            "where removed group by 1 order by 2 desc, 1",
            "not there any more",
            old,
            new,
        ),
        moves=[
            (before, after, n)
            for before, after, n in _select(
                "select old_split, new_split, count(*) from d where moved "
                "group by 1, 2 order by 3 desc, 1, 2",
                old,
                new,
            )
        ],
    )


def compare_count(*, old: Snapshot, new: Snapshot, wanted: DiffFilter) -> int:
    where, values = _where(wanted)
    ((n,),) = _select(f"select count(*) from {_JOINED} where {where}", old, new, values)
    return n


def compare_rows(
    *, old: Snapshot, new: Snapshot, wanted: DiffFilter, start: int = 0, most: int | None = None
) -> Iterator[Change]:
    """Changes in order of the comparison's number, the held-out people's row after the other."""
    where, values = _where(wanted)
    statement = f"""
        select d.comparison_id, held, old_split, new_split, old_winner, new_winner, old_confidence,
               new_confidence, old_votes, new_votes, old_reason, new_reason, {", ".join(CHANGES)},
               c.external_id, p.messages
        from {_JOINED} where {where} order by d.comparison_id, held
        limit %(most)s offset %(start)s
    """
    with connection.cursor() as cursor:
        known = _values(old, new) | values | {"most": most, "start": start}
        cursor.execute(_BOTH + statement, known)
        return map(_change, rows_named(cursor))


_JOINED = (
    "d join labeling_comparison c on c.id = d.comparison_id "
    "join labeling_prompt p on p.id = c.prompt_id"
)


def _where(wanted: DiffFilter) -> tuple[str, dict[str, Any]]:
    if wanted.change and wanted.change not in CHANGES:
        raise DomainError(f"The change is one of {', '.join(CHANGES)}.", field="change")
    parts = [wanted.change or f"({_ANY})"]
    # Private files are counted in the summary, and nobody looks through their rows here.
    parts.append("not (array[old_split, new_split] && %(private)s::varchar[])")
    values: dict[str, Any] = {"private": sorted(PRIVATE_SPLITS)}
    if wanted.split:
        parts.append("%(split)s in (old_split, new_split)")
        values["split"] = wanted.split
    if wanted.search:
        parts.append(
            "(c.id::text = %(exact)s or c.external_id ilike %(like)s "
            "or p.messages::text ilike %(like)s)"
        )
        escaped = wanted.search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values |= {"exact": wanted.search.lstrip("#"), "like": f"%{escaped}%"}
    return " and ".join(parts), values


def _select(
    sql: str, old: Snapshot, new: Snapshot, more: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_BOTH + sql, _values(old, new) | (more or {}))
        return cursor.fetchall()


def _values(old: Snapshot, new: Snapshot) -> dict[str, Any]:
    return {"old": old.pk, "new": new.pk, "held": HELDOUT_ANNOTATORS}


def _reasons(sql: str, absent: str, old: Snapshot, new: Snapshot) -> list[tuple[str, int]]:
    return [(reason or absent, n) for reason, n in _select(sql, old, new)]


def _change(row: dict[str, Any]) -> Change:
    return Change(
        comparison=row["comparison_id"],
        name=row["external_id"] or f"#{row['comparison_id']}",
        prompt=excerpt(_json(row["messages"])),
        held=row["held"],
        what=tuple(key for key in CHANGES if row[key]),
        before=_fate(row, "old"),
        after=_fate(row, "new"),
    )


def _fate(row: dict[str, Any], side: str) -> Fate | None:
    split, winner, confidence, votes, reason = (
        row[f"{side}_{name}"] for name in ("split", "winner", "confidence", "votes", "reason")
    )
    if split is None:
        return None
    return Fate(split, winner, confidence, tuple(_json(votes)), reason)


def _json(value: Any) -> Any:
    """A raw cursor gives jsonb as text."""
    return json.loads(value) if isinstance(value, str) else value


def _without(one: Fate | None, other: Fate | None) -> tuple[int, ...]:
    known = set(other.votes) if other else set()
    return tuple(vote for vote in one.votes if vote not in known) if one else ()


# What became of votes after a dataset was frozen from them. Live: nothing of it is stored.
#
# A vote's row stays for good. It stops counting when its annotator changes it (a revision
# supersedes it), takes it back, or when its comparison was sent to a new round of votes.

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
  where s.kind in ('former', 'discard') and s.project_id in (
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
    DISCARDED = "discarded"


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
        elif kind == Slot.Kind.DISCARD:
            became = Became.DISCARDED
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
