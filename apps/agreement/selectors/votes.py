"""Reading votes for statistics, and the stored report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from django.db.models import Max, Q
from django.utils import timezone
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.common.columns import int_columns
from apps.labeling.models import Comparison, LabelingSettings, Slot, Vote
from measures.agreement import count_matrix
from measures.voting import CHOICES, Rule

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Raised when figures gain parts that pages print: older reports are computed again.
FIGURES_VERSION = 2

QUICK = 3.0  # seconds a report may take without being rationed
RESTS = 20  # seconds it is left alone for each second beyond

KINDS = tuple(str(kind) for kind in Slot.Kind.values)
STRATA = tuple(str(stratum) for stratum in Comparison.Stratum.values)


@dataclass(frozen=True, slots=True)
class VoteColumns:
    """Every current vote of a project, one entry per vote in each array, by vote id.

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
where v.project_id = %(project)s and v.is_current
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
    columns = dict(zip(_COLUMNS, (values[order] for values in read), strict=True))
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
    return Vote.objects.filter(project=project).aggregate(newest=Max("id"))["newest"] or 0


def report_get(*, project: Project) -> AgreementReport | None:
    """The stored report; None before the first one, and where it lacks what pages now print."""
    return AgreementReport.objects.filter(project=project, figures__version=FIGURES_VERSION).first()


def stale_projects() -> list[Project]:
    """Projects whose newest vote is newer than their report (or that have none yet).

    One that takes long is left alone for a while, so that it does not keep a worker busy."""
    newest = dict(
        Vote.objects.values_list("project_id")
        .annotate(newest=Max("id"))
        .values_list("project_id", "newest")
    )
    current = AgreementReport.objects.filter(figures__version=FIGURES_VERSION)
    seen, now = {}, timezone.now()
    for key, vote, at, seconds in current.values_list(
        "project_id", "last_vote_id", "computed_at", "figures__seconds"
    ):
        rests = now - at < timedelta(seconds=RESTS * max(0.0, (seconds or 0.0) - QUICK))
        seen[key] = newest.get(key, 0) if rests else vote
    behind = [key for key, vote in newest.items() if seen.get(key, 0) < vote]
    return list(Project.objects.filter(id__in=behind, archived_at__isnull=True))
