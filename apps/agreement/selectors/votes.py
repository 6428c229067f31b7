"""Reading votes for statistics, and the stored report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Q
from django.utils import timezone
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.labeling.models import Comparison, LabelingSettings, Slot
from apps.labeling.selectors.projects import newest_vote_of, newest_votes
from measures.agreement import count_matrix
from measures.consensus import Votes, posteriors_of
from measures.estimate import Interval
from measures.intervals import wilson
from measures.voting import CHOICES, PosteriorRule, Rule, decide_many_by_posterior

# Whole columns of numbers out of the database, for statistics over a project.
#
# A million rows as Python tuples take some three seconds and half a gigabyte; COPY hands over every
# row as a message of its own, which is hardly faster. Here the database strings the numbers of
# 200,000 rows together, and numpy reads each such block in place: four times as fast as COPY.

_ROWS = 200_000  # in one block; a value of PostgreSQL holds a gigabyte at most


def int_columns(query: str, values: Mapping[str, Any], *, n: int) -> list[NDArray[np.int64]]:
    """The n columns of a select, each a vector; rows in any order. Whole numbers, never null.

    `query` is this project's own text, never input. Raises ValueError where a column holds a null.
    """
    names = [f"c{i}" for i in range(n)]
    row = " || ".join(f"int8send({name}::bigint)" for name in names)
    statement = f"""
        select count(*), string_agg({row}, ''::bytea) from (
          select *, (row_number() over () - 1) / {_ROWS} as block
          from ({query}) as q({", ".join(names)})
        ) numbered group by block"""  # noqa: S608 - names are ours
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        wanted, parts = 0, []
        for count, block in cursor:  # one at a time: ten million rows are gigabytes
            part = np.frombuffer(block or b"", dtype=">i8").reshape(-1, n)
            parts.append(np.ascontiguousarray(part.T, dtype=np.int64))
            wanted += count
    if sum(part.shape[1] for part in parts) != wanted:
        raise ValueError("a column holds a null")
    if not parts:
        return [np.zeros(0, dtype=np.int64) for _ in names]
    return [np.concatenate([part[i] for part in parts]) for i in range(n)]


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Raised when figures gain parts that pages print: older reports are computed again.
FIGURES_VERSION = 3

QUICK = 3.0  # seconds a report may take without being rationed
RESTS = 20  # seconds it is left alone for each second beyond

KINDS = tuple(str(kind) for kind in Slot.Kind.values)
STRATA = tuple(str(stratum) for stratum in Comparison.Stratum.values)


@dataclass(frozen=True, slots=True)
class VoteColumns:
    """Every current vote of a project but for discarded ones, one entry per vote in each array, by
    vote id.

    comparison, annotator, vote: ids; choice: place in `measures.voting.CHOICES`; kind, stratum:
    place in KINDS and STRATA; extra: the slot was added because the votes before did not settle
    the comparison; left: 1 where response A stood left, 0 where B did, −1 unknown; guideline: the
    version it was cast under, 0 for none; cast_at: seconds since 1970 (UTC); active_ms: −1 unknown.
    """

    vote: Ints
    comparison: Ints
    annotator: Ints
    choice: Ints
    kind: Ints
    stratum: Ints
    extra: Bools
    left: Ints
    guideline: Ints
    cast_at: Ints
    active_ms: Ints

    def __len__(self) -> int:
        return len(self.vote)

    def only(self, rows: Bools) -> "VoteColumns":
        return VoteColumns(*(getattr(self, name)[rows] for name in self.__slots__))


def _code(column: str, values: tuple[str, ...]) -> str:
    cases = " ".join(f"when '{value}' then {place}" for place, value in enumerate(values))
    return f"case {column} {cases} end"


_COLUMNS = {
    "vote": "v.id",
    "comparison": "v.comparison_id",
    "annotator": "v.annotator_id",
    "choice": _code("v.choice", tuple(str(choice) for choice in CHOICES)),
    "kind": _code("s.kind", KINDS),
    "stratum": _code("c.stratum", STRATA),
    "extra": "(s.priority > c.priority and v.source <> 'import')::int",
    "left": "case v.left_is when 'a' then 1 when 'b' then 0 else -1 end",
    "guideline": "coalesce(g.version, 0)",
    "cast_at": "extract(epoch from v.cast_at)",
    "active_ms": "coalesce(v.active_ms, -1)",
}
_FROM = """
from labeling_vote v
join labeling_slot s on s.id = v.slot_id
join labeling_comparison c on c.id = v.comparison_id
left join labeling_guideline g on g.id = v.guideline_id
where v.project_id = %(project)s and v.is_current and s.kind <> 'discard'
"""


# Comparisons on which two of some people have voted, with everybody's votes on them.
_SHARED = """
  and v.comparison_id in (
    select w.comparison_id from labeling_vote w
    where w.project_id = %(project)s and w.is_current and w.annotator_id = any(%(people)s)
    group by w.comparison_id having count(distinct w.annotator_id) >= 2)
"""


def vote_columns(*, project: Project, people: Sequence[int] | None = None) -> VoteColumns:
    """All current votes, in one read of whole numbers; with `people`, all those on comparisons
    that two of these people have voted on."""
    source = _FROM if people is None else _FROM + _SHARED
    values = {"project": project.pk, "people": list(people or [])}
    read = int_columns(selected(_COLUMNS.values(), source), values, n=len(_COLUMNS))
    order = np.argsort(read[0], kind="stable")
    columns = {name: read.pop(0)[order] for name in _COLUMNS}
    return VoteColumns(**columns | {"extra": columns["extra"] == 1})


def selected(expressions: Iterable[str], source: str) -> str:
    """A select of these expressions as bigint, for `int_columns`."""
    return f"select {', '.join(f'({part})::bigint' for part in expressions)} {source}"


@dataclass(frozen=True, slots=True)
class VoteTable:
    """Votes as counts. `counts[i, c]`: votes for choice c (order of
    `measures.voting.CHOICES`) on comparison `ids[i]`; `golds[i]` its gold label or "";
    `responses[i]` its two responses' text hashes (the same answer recurs in many comparisons)."""

    ids: Ints
    counts: Ints
    responses: list[tuple[str, str]]
    golds: list[str]
    n_annotators: int
    last_vote_id: int


def vote_table(*, project: Project, columns: VoteColumns | None = None) -> VoteTable:
    """The random stratum's regular votes: what the rule decides on.

    Priority and gold comparisons are chosen, repeats and audits are second looks: none of them is
    a random sample of the project's pairs.
    """
    everything = vote_columns(project=project) if columns is None else columns
    rows = everything.only(
        (everything.kind == KINDS.index(Slot.Kind.REGULAR))
        & (everything.stratum == STRATA.index(Comparison.Stratum.RANDOM))
    )
    ids, items = np.unique(rows.comparison, return_inverse=True)
    about = _about(project, ids) if len(ids) else {}
    return VoteTable(
        ids=ids,
        counts=count_matrix(items, rows.choice, n_items=len(ids), n_categories=len(CHOICES)),
        responses=[about[i][1:] for i in ids.tolist()],
        golds=[about[i][0] for i in ids.tolist()],
        n_annotators=len(np.unique(rows.annotator)),
        last_vote_id=int(rows.vote.max(initial=0)),
    )


def _about(project: Project, ids: Ints) -> dict[int, tuple[str, str, str]]:
    """Gold label and text hashes; the hashes matter only where there is gold to be clustered by."""
    found: dict[int, tuple[str, str, str]] = dict.fromkeys(ids.tolist(), ("", "", ""))
    with_gold = Comparison.objects.filter(
        ~Q(gold=""), project=project, stratum=Comparison.Stratum.RANDOM
    ).values_list("id", "gold", "response_a__text_hash", "response_b__text_hash")
    found |= {row[0]: row[1:] for row in with_gold.iterator(chunk_size=10_000) if row[0] in found}
    return found


def rule_of(*, project: Project) -> Rule:
    """The project's decision rule, as `measures.voting` takes it."""
    settings = settings_of(project=project)
    return Rule(
        least_votes=settings.least_votes,
        least_agreeing=settings.least_agreeing,
        least_share=settings.least_share,
        max_votes=settings.max_overlap,
    )


def settings_of(*, project: Project) -> LabelingSettings:
    return LabelingSettings.objects.filter(project=project).first() or LabelingSettings()


def offered_columns(*, project: Project, counts: Ints) -> Bools:
    """(4,) which choices annotators have: A and B, what the project shows, what has votes."""
    settings = settings_of(project=project)
    shown = {"a": True, "b": True, "tie": settings.show_tie, "both_bad": settings.show_both_bad}
    return np.array([shown[str(choice)] for choice in CHOICES]) | (counts.sum(axis=0) > 0)


def newest_vote_id(*, project: Project) -> int:
    return newest_vote_of(project=project)


def report_get(*, project: Project) -> AgreementReport | None:
    """The stored report; None before the first one, and where it lacks what pages now print."""
    return AgreementReport.objects.filter(project=project, figures__version=FIGURES_VERSION).first()


def stale_projects() -> list[Project]:
    """Projects whose newest vote is newer than their report (or that have none yet).

    One that takes long is left alone for a while, so that it does not keep a worker busy."""
    newest = newest_votes()
    current = AgreementReport.objects.filter(figures__version=FIGURES_VERSION)
    seen, now = {}, timezone.now()
    for key, vote, at, seconds in current.values_list(
        "project_id", "last_vote_id", "computed_at", "figures__seconds"
    ):
        rests = now - at < timedelta(seconds=RESTS * max(0.0, (seconds or 0.0) - QUICK))
        seen[key] = newest.get(key, 0) if rests else vote
    behind = [key for key, vote in newest.items() if seen.get(key, 0) < vote]
    return list(Project.objects.filter(id__in=behind, archived_at__isnull=True))


# Which votes agreement is computed on, and why the others are left out.
#
# A statistic of agreement means something when the votes it sees were not asked for because of what
# other votes said. Four kinds of votes were: comparisons of the priority stratum (chosen because a
# model or a person found them telling), extra votes (asked for because the first ones differed),
# votes after the first two where the project stops early, and votes of a second round. Gold pairs,
# hidden repeats and audits have other purposes.

# Reasons in the order in which they are listed and tested.
REPEAT, AUDIT, GOLD, PRIORITY, ROUND, EXTRA, LATER = (
    "repeat",
    "audit",
    "gold",
    "priority",
    "round",
    "extra",
    "later",
)
REASONS = {
    REPEAT: "hidden repeats: the same person again",
    AUDIT: "audits: a second look by a reviewer",
    GOLD: "on gold and qualification comparisons, which are chosen",
    PRIORITY: "on comparisons picked by priority, which are not a random sample",
    ROUND: "of a second round: the comparison was sent again because the first votes differed",
    EXTRA: "extra votes: asked for because the first ones did not settle it",
    LATER: "third and later votes: asked for only where the first two did not settle it",
}
BEFORE_STOPPING = 2


@dataclass(frozen=True, slots=True)
class Counted:
    """`rows`: which votes count; `left_out`: votes by reason, without the reasons that hit none."""

    rows: Bools
    left_out: dict[str, int]


def counted_votes(columns: VoteColumns, settings: LabelingSettings) -> Counted:
    """Sort every current vote into "counts" or the first reason why it does not.

    A comparison that was sent to a second round counts with the votes of its first one, as many
    as the project asks for at once.
    """
    kind, stratum = columns.kind, columns.stratum
    former = kind == KINDS.index(Slot.Kind.FORMER)
    sent_again = np.isin(columns.comparison, np.unique(columns.comparison[former]))
    regular = kind == KINDS.index(Slot.Kind.REGULAR)
    place = _place(np.where(former | (regular & ~sent_again), columns.comparison, -1))
    reasons = {
        REPEAT: kind == KINDS.index(Slot.Kind.REPEAT),
        AUDIT: kind == KINDS.index(Slot.Kind.AUDIT),
        GOLD: (kind == KINDS.index(Slot.Kind.GOLD))
        | np.isin(stratum, [STRATA.index(s) for s in _CHOSEN]),
        PRIORITY: stratum == STRATA.index(Comparison.Stratum.PRIORITY),
        ROUND: regular & sent_again,
        EXTRA: columns.extra | (former & (place >= settings.overlap)),
        LATER: (place >= BEFORE_STOPPING) & settings.stop_early,
    }
    open_still = np.ones(len(columns), dtype=bool)
    left_out = {}
    for name, hit in reasons.items():
        if n := int((open_still & hit).sum()):
            left_out[name] = n
        open_still &= ~hit
    return Counted(rows=open_still, left_out=left_out)


_CHOSEN = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)


def _place(comparison: Ints) -> Ints:
    """0, 1, 2 … within each comparison, in the order given."""
    order = np.argsort(comparison, kind="stable")
    grouped = comparison[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]]) if len(order) else order
    sizes = np.diff(np.r_[starts, len(order)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    return place


# How right is what a rule keeps, and how much of it chance alone would have passed.

_FLIPPED_ITEMS = 20_000  # comparisons whose votes are replaced by coin flips; error under 0.4 %
_SEED = 20_161


def kept_accuracy(
    golds: NDArray[np.int64],
    winner: NDArray[np.integer[Any]],
    n: NDArray[np.int64] | None = None,
) -> Interval | None:
    """How many of the accepted comparisons with a known answer were decided for it (Wilson). n: how
    many comparisons each row stands for."""
    known = (golds >= 0) & (winner >= 0)
    if not known.any():
        return None
    times = np.ones(len(golds), dtype=np.int64) if n is None else n
    return wilson(int(times[known & (winner == golds)].sum()), int(times[known].sum()))


def flipped_keep_rate(
    votes: Votes,
    priors: NDArray[np.float64],
    confusion: NDArray[np.float64],
    default: NDArray[np.float64],
    rule: PosteriorRule,
) -> float | None:
    """The share of comparisons that pass when every vote on them is a coin flip between A and B.

    The voters keep their numbers of votes and what the model believes of them, so this is what the
    posterior lets through by chance here. One seeded draw over at most 20,000 comparisons.
    """
    rng = np.random.default_rng(_SEED)
    with_votes = np.unique(votes.items)
    if not len(with_votes):
        return None
    chosen = np.zeros(votes.n_items, dtype=bool)
    sample = with_votes
    if len(sample) > _FLIPPED_ITEMS:
        sample = rng.choice(with_votes, _FLIPPED_ITEMS, replace=False)
    chosen[sample] = True
    part = votes.subset(chosen[votes.items])
    flips = Votes(
        part.items,
        part.annotators,
        rng.integers(0, 2, size=len(part)),
        part.n_items,
        part.n_annotators,
        part.known,
    )
    shares = posteriors_of(flips, priors, confusion, default)
    decided = decide_many_by_posterior(flips.counts()[sample], shares[sample], rule)
    return float((decided.winner >= 0).mean())
