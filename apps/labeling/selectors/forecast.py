"""Reads: how far the votes are, who casts them at which pace, and how one person does."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.models import (
    Avg,
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    IntegerField,
    Min,
    Value,
)
from django.db.models.functions import Extract, Floor
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.kept import kept_while_worth
from apps.common.transactions import row_named, rows_named
from apps.labeling.models import NOBODY_LEFT, Comparison, Vote
from measures.pace import WINDOW_DAYS

KEPT_SECONDS = 20  # votes of a large project take a fifth of a second to count
MOST_BEHIND = 10
_DROPPED = Comparison.State.DROPPED
LAST_ANSWERS = 50  # from which a person's pace is

# One reading of the comparisons: a million of them take a third of a second.
_COMPARISONS = """
select state, count(*) as n, sum(n_votes) as cast, sum(greatest(overlap - n_votes, 0)) as lacking,
       count(*) filter (where review_reason = %(nobody)s) as stuck
from labeling_comparison
where project_id = %(project)s and stratum <> 'practice'
group by state
"""
# Everybody who labels here now, with what they have cast; imported people cannot sign in.
_PEOPLE = """
with cast_here as (
  select annotator_id, count(*) as n, count(*) filter (where cast_at >= %(since)s) as recent,
         min(cast_at) filter (where cast_at >= %(since)s) as first, max(cast_at) as last
  from labeling_vote
  where project_id = %(project)s and is_current and source <> 'import'
  group by annotator_id
)
select m.user_id as user, u.username, coalesce(nullif(u.display_name, ''), u.username) as name,
       coalesce(v.n, 0) as n, coalesce(v.recent, 0) as recent, v.first, v.last,
       m.paused_reason = '' and (m.role = 'annotator' or v.n > 0) as shares
from accounts_membership m
join accounts_user u on u.id = m.user_id and u.is_active
left join cast_here v on v.annotator_id = m.user_id
where m.project_id = %(project)s and m.role in ('annotator', 'reviewer', 'admin')
"""
# By people, since the index of votes is: only what is newer is looked at.
_SINCE = """
select {columns} from accounts_membership m
cross join lateral (select v.cast_at from labeling_vote v
                    where v.project_id = m.project_id and v.annotator_id = m.user_id
                      and v.cast_at > %(first)s and v.is_current) v
where m.project_id = %(project)s
"""


@dataclass(frozen=True, slots=True)
class Share:
    """One person's part of the work. behind: votes they lack for their share."""

    user: int
    username: str
    name: str
    n: int
    behind: int


@dataclass(frozen=True, slots=True)
class Work:
    """Votes of a project. done: on comparisons that are not dropped; to_go: still wanted; share:
    what each of `people` would cast of all votes, past and to come; recent: votes of the last days,
    the first of them at `first`; behind: who lacks most for their share. states: comparisons."""

    states: Mapping[str, int]
    stuck: int
    done: int
    to_go: int
    people: int
    share: int
    recent: int
    first: datetime | None
    last: datetime | None
    behind: Sequence[Share]

    @property
    def wanted(self) -> int:
        return self.done + self.to_go


def work_of(project: Project) -> Work:
    """At most KEPT_SECONDS old, or a hundred times as long as it takes to find out."""
    key = f"labeling:work:{project.pk}"
    kept = kept_while_worth(key, lambda: _as_json(_work(project)), least_s=KEPT_SECONDS)
    times = {
        name: datetime.fromisoformat(kept[name]) if kept[name] else None
        for name in ("first", "last")
    }
    return Work(**kept | times | {"behind": [Share(**row) for row in kept["behind"]]})


def _as_json(work: Work) -> dict[str, Any]:
    times = {"first": work.first, "last": work.last}
    return asdict(work) | {name: at.isoformat() if at else None for name, at in times.items()}


def _work(project: Project) -> Work:
    since = timezone.now() - timedelta(days=WINDOW_DAYS)
    values: dict[str, Any] = {"project": project.pk, "since": since, "nobody": NOBODY_LEFT}
    with connection.cursor() as cursor:
        cursor.execute(_COMPARISONS, values)
        by_state = {row.pop("state"): row for row in rows_named(cursor)}
        cursor.execute(_PEOPLE, values)
        rows = rows_named(cursor)
    states = {state: by_state.get(state, {}).get("n", 0) for state in Comparison.State.values}
    to_go = by_state.get(Comparison.State.OPEN, {}).get("lacking", 0)
    sharing = [row for row in rows if row["shares"]]
    cast = sum(row["n"] for row in sharing)
    share = -(-(cast + to_go) // len(sharing)) if sharing else 0
    behind = sorted(sharing, key=lambda row: (row["n"], row["username"]))
    return Work(
        states=states,
        stuck=by_state.get(Comparison.State.CONTESTED, {}).get("stuck", 0),
        done=sum(row["cast"] for state, row in by_state.items() if state != _DROPPED),
        to_go=to_go,
        people=len(sharing),
        share=share,
        recent=sum(row["recent"] for row in rows),
        first=min((row["first"] for row in rows if row["first"]), default=None),
        last=max((row["last"] for row in rows if row["last"]), default=None),
        behind=[
            Share(row["user"], row["username"], row["name"], row["n"], share - row["n"])
            for row in behind[:MOST_BEHIND]
            if row["n"] < share
        ],
    )


def votes_since(project: Project, times: Mapping[str, datetime | None]) -> dict[str, int]:
    """{name: current votes cast after its time, or all votes where there is none}; at most a
    minute old."""
    everything = work_of(project).done
    known = {name: at for name, at in times.items() if at is not None}
    return dict.fromkeys(times, everything) | (_votes_since(project, known) if known else {})


def _votes_since(project: Project, times: Mapping[str, datetime]) -> dict[str, int]:
    key = f"labeling:since:{project.pk}:{sorted((name, str(at)) for name, at in times.items())}"
    kept = cache.get(key)
    if kept is None:
        given = {f"t{k}": at for k, at in enumerate(times.values())}
        columns = ", ".join(
            f"count(*) filter (where v.cast_at > %({name})s) as {name}" for name in given
        )
        with connection.cursor() as cursor:
            cursor.execute(
                _SINCE.format(columns=columns),
                {"project": project.pk, "first": min(given.values()), **given},
            )
            found: Any = row_named(cursor)
        kept = {name: found[f"t{k}"] for k, name in enumerate(times)}
        cache.set(key, kept, 3 * KEPT_SECONDS)
    return kept


PACE_DAYS = 28


@dataclass(frozen=True, slots=True)
class Pace:
    """Votes that people cast here in the last days. daily: of each day, oldest first, from the
    first vote ever or PACE_DAYS ago; a day is the 24 hours that end at this time of day. people:
    who cast them; seconds: active time of a vote, the mean over `timed` of them."""

    daily: Sequence[int]
    people: int
    seconds: float | None
    timed: int


def pace_of(project: Project) -> Pace:
    elsewhere = (Vote.Source.IMPORT, Vote.Source.SIMULATED)
    cast = Vote.objects.filter(project=project, is_current=True).exclude(source__in=elsewhere)
    now = timezone.now()
    first = cast.aggregate(at=Min("cast_at"))["at"]
    if first is None:
        return Pace([], 0, None, 0)
    days = min(PACE_DAYS, max(1, math.ceil((now - first) / timedelta(days=1))))
    recent = cast.filter(cast_at__gt=now - timedelta(days=days))
    counted = recent.aggregate(
        people=Count("annotator", distinct=True),
        timed=Count("active_ms"),
        ms=Avg("active_ms"),
    )
    ago = ExpressionWrapper(Value(now) - F("cast_at"), output_field=DurationField())
    age = Floor(Extract(ago, "epoch") / 86_400, output_field=IntegerField())
    daily = [0] * days
    for day, n in recent.order_by().annotate(age=age).values_list("age").annotate(n=Count("pk")):
        daily[days - 1 - min(days - 1, max(0, day))] += n
    seconds = None if counted["ms"] is None else float(counted["ms"]) / 1000
    return Pace(daily, counted["people"], seconds, counted["timed"])


def minutes_per_ten(*, project: Project, annotator: User) -> float | None:
    """How long this person is at ten pairs, by the median of their last answers; None before ten
    answers with a known time."""
    rows = Vote.objects.filter(project=project, annotator=annotator, active_ms__isnull=False)
    last = rows.order_by("-cast_at").values_list("active_ms", flat=True)[:LAST_ANSWERS]
    times = [ms for ms in last if ms is not None]
    return statistics.median(times) / 6_000 if len(times) >= 10 else None
