"""Reads: votes of the audit sample, judged again or waiting to be."""
# ruff: noqa: S608  (what is pasted into the statements are constants)

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Count, Exists, F, OuterRef, Q, Sum
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.agreement.models import Ruling
from apps.common.kept import kept_while_worth
from apps.common.transactions import rows_named
from apps.labeling.models import AUDIT_SEED, Decision, LabelingSettings, Slot, Vote
from apps.labeling.services.statements import AUDITABLE
from measures.audit import Rate, coincidence, error_from_repeats, simple_rate

_LOWEST_HASH = -(2**63)

# Every audit that was done, the first one of each vote. What has become of the comparison since is
# not asked: an audit that led to a ruling would drop out, and with it the errors that were found.
_DONE = """
select distinct on (v.id) v.id as vote, v.comparison_id as comparison,
       v.annotator_id as annotator, v.choice, v.cast_at as voted_at,
       r.choice as judged, r.annotator_id as reviewer, r.cast_at as judged_at, c.external_id,
       case when s.kind = 'regular' and d.outcome = 'accepted' then d.winner end as decided,
       n.a, n.b, n.tie, n.both_bad
from labeling_slot a
join labeling_vote v on v.id = a.measures_id and v.is_current
join labeling_slot s on s.id = v.slot_id and s.kind <> 'discard'
join labeling_vote r on r.slot_id = a.id and r.is_current
join labeling_comparison c on c.id = v.comparison_id
left join labeling_decision d on d.comparison_id = c.id
cross join lateral (
  -- the votes that were cast in the same round, which decided with it
  select count(*) filter (where o.choice = 'a') as a, count(*) filter (where o.choice = 'b') as b,
         count(*) filter (where o.choice = 'tie') as tie,
         count(*) filter (where o.choice = 'both_bad') as both_bad
  from labeling_vote o join labeling_slot t on t.id = o.slot_id
  where o.comparison_id = v.comparison_id and o.is_current
    and (t.kind = s.kind or s.kind = 'regular' and t.kind = 'gold')
) n
where a.project_id = %(project)s and a.kind = 'audit' and a.state = 'done'
  and a.measures_id is not null
order by v.id, a.id
"""

# By annotator: all votes on decided comparisons, and those of the sample that still wait.
_VOTES = f"""
select annotator_id, count(*), count(*) filter (where due),
       count(*) filter (where due and since < %(overdue)s),
       extract(epoch from min(since) filter (where due))::float8
from (
  select v.annotator_id, greatest(v.cast_at, c.created_at) as since,
         hashint8extended(v.id, {AUDIT_SEED}) < %(below)s
         and not exists (select from labeling_slot a where a.measures_id = v.id
                         and a.kind = 'audit' and a.state = 'done') as due
  from labeling_vote v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_comparison c on c.id = v.comparison_id
  join labeling_decision d on d.comparison_id = c.id and {AUDITABLE}
  where v.project_id = %(project)s and v.is_current
  offset 0  -- `due` is worked out once for each vote
) votes group by annotator_id
"""


# The same votes, found by the index of the sample: for a count that pages show.
_DUE = f"""
select count(*) from (
  select from labeling_vote v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  join labeling_comparison c on c.id = v.comparison_id
  join labeling_decision d on d.comparison_id = c.id and {AUDITABLE}
  where v.project_id = %(project)s and v.is_current
    and hashint8extended(v.id, {AUDIT_SEED}) < %(below)s
    and not exists (select from labeling_slot a where a.measures_id = v.id
                    and a.kind = 'audit' and a.state = 'done')
  limit %(most)s
) due
"""
MOST_DUE = 1_000
_KEPT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Audited:
    """A vote and what a reviewer made of the same pair. `decided`: what the votes of its round
    decided, whatever was ruled or voted since; "" where they are even. n_votes: how many they
    are."""

    vote: int
    comparison: int
    external_id: str
    annotator: int
    choice: str
    voted_at: datetime
    judged: str
    reviewer: int
    judged_at: datetime
    decided: str
    n_votes: int

    @property
    def differs(self) -> bool:
        return self.choice != self.judged

    @property
    def decision_differs(self) -> bool:
        return bool(self.decided) and self.decided != self.judged


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of one annotator: votes that wait for an audit, how many of them for too long, since when."""

    due: int
    overdue: int
    since: datetime


@dataclass(frozen=True, slots=True)
class AuditSample:
    """done: newest audit first; waiting and population by annotator; population counts their votes
    on decided comparisons, audited ones included."""

    done: list[Audited]
    waiting: dict[int, Waiting]
    population: dict[int, int]
    settings: LabelingSettings

    @property
    def due(self) -> int:
        return sum(row.due for row in self.waiting.values())

    @property
    def overdue(self) -> int:
        return sum(row.overdue for row in self.waiting.values())


def audits_due(*, project: Project) -> int:
    """Votes of the sample that wait for an audit, at most one more than MOST_DUE; at most a minute
    old. All of them would take longer than the rest of an overview."""
    key = f"agreement:audits:{project.pk}"
    found = cache.get(key)
    if found is None:
        settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
        with connection.cursor() as cursor:
            below, most = _below(settings), MOST_DUE + 1
            cursor.execute(_DUE, {"project": project.pk, "below": below, "most": most})
            found = cursor.fetchone()[0]
        cache.set(key, found, _KEPT_SECONDS)
    return found


def _below(settings: LabelingSettings) -> int:
    """The same bound as in `labeling.services.leasing`."""
    return min(_LOWEST_HASH + int(settings.audit_rate * 2**64), -_LOWEST_HASH - 1)


def audit_sample(*, project: Project) -> AuditSample:
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    values: dict[str, str | int | datetime] = {
        "project": project.pk,
        "below": _below(settings),
        "overdue": timezone.now() - timedelta(days=settings.audit_days),
    }
    with connection.cursor() as cursor:
        cursor.execute(_DONE, values)
        done = [_audited(row) for row in rows_named(cursor)]
        # With ten million votes half a minute.
        key = f"agreement:audit-votes:{project.pk}:{values['below']}"
        votes = kept_while_worth(key, lambda: _all(cursor, _VOTES, values))
    waiting = {
        person: Waiting(due, overdue, datetime.fromtimestamp(since, UTC))
        for person, _, due, overdue, since in votes
        if due
    }
    population = {person: n for person, n, *_ in votes}
    done.sort(key=lambda row: (row.judged_at, row.vote), reverse=True)
    audited: dict[int, int] = {}
    for row in done:
        audited[row.annotator] = audited.get(row.annotator, 0) + 1
    for person, n in audited.items():  # some of theirs may have left the decided since
        population[person] = max(population.get(person, 0), n)
    return AuditSample(done, waiting, population, settings)


def _all(cursor: CursorWrapper, statement: str, values: dict[str, Any]) -> list[Any]:
    cursor.execute(statement, values)
    return list(cursor.fetchall())


def _audited(row: dict[str, Any]) -> Audited:
    counts = {choice: row.pop(choice) for choice in ("a", "b", "tie", "both_bad")}
    decided = row.pop("decided") or _plurality(counts)
    return Audited(**row, decided=decided, n_votes=sum(counts.values()))


def _plurality(counts: dict[str, int]) -> str:
    """What most votes were for; "" where several choices have as many."""
    most = max(counts.values())
    leading = [choice for choice, n in counts.items() if n == most]
    return leading[0] if len(leading) == 1 else ""


@dataclass(frozen=True, slots=True)
class ReviewerError:
    """How often the reviewers err who did the audits, and where that is known from: gold answers,
    repeats, or "" where neither suffices."""

    rate: Rate
    source: str
    least: int


def reviewer_error(
    *, project: Project, sample: AuditSample, least: int, kappa: float
) -> ReviewerError:
    """From their answers on pairs with a known answer, else from pairs they judged twice.

    Answers on pairs that somebody made gold by a ruling are left out: such pairs are the hardest,
    and the reviewer may have ruled on them.
    """
    reviewers = {row.reviewer for row in sample.done}
    if not reviewers:
        return ReviewerError(Rate(None, None, 0, "no audit has been done yet"), "", least)
    ruled = Ruling.objects.filter(comparison=OuterRef("comparison"), action=Ruling.Action.MADE_GOLD)
    known = (
        Vote.objects.filter(project=project, annotator__in=reviewers, is_current=True)
        .exclude(comparison__gold="")
        .exclude(Exists(ruled))
        .aggregate(n=Count("pk"), wrong=Count("pk", filter=~Q(choice=F("comparison__gold"))))
    )
    if known["n"] >= least:
        return ReviewerError(simple_rate(known["wrong"], known["n"]), "gold", least)
    twice = Vote.objects.filter(
        project=project, annotator__in=reviewers, is_current=True, slot__kind=Slot.Kind.REPEAT
    ).aggregate(n=Count("pk"), differing=Count("pk", filter=~Q(choice=F("slot__measures__choice"))))
    if twice["n"] >= least:
        rate = error_from_repeats(twice["differing"], twice["n"], kappa=kappa)
        return ReviewerError(rate, "repeats", least)
    n = known["n"] + twice["n"]
    why = (
        f"the reviewers have {known['n']} answers on pairs with a known answer and "
        f"{twice['n']} on pairs they judged twice; {least} of one kind are needed"
    )
    return ReviewerError(Rate(None, None, n, why), "", least)


def kappa_of(*, project: Project) -> float:
    """The chance that two wrong answers coincide, by how often each choice is made here."""
    sums = Decision.objects.filter(project=project).aggregate(
        a=Sum("n_a"), b=Sum("n_b"), tie=Sum("n_tie"), both_bad=Sum("n_both_bad")
    )
    return coincidence([sums[name] or 0 for name in ("a", "b", "tie", "both_bad")])


def names_of(people: set[int]) -> dict[int, str]:
    return {user.pk: str(user) for user in User.objects.filter(pk__in=people)}
