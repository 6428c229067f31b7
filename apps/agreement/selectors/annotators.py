"""Reads about single annotators: the stored reports, who is left out, where they differ."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from django.db import connection
from django.db.models import (
    Count,
    Exists,
    F,
    FloatField,
    Func,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Lower
from django.utils import timezone
from numpy.typing import NDArray
from scipy.special import stdtrit

from apps.accounts.models import Membership, Project, Role, User
from apps.agreement.models import AnnotatorReport
from apps.agreement.selectors.votes import int_columns
from apps.labeling.models import Annotator, Comparison, Consensus, Slot, Vote
from apps.labeling.selectors.own import DELAY
from apps.labeling.selectors.projects import newest_votes
from measures.annotators import Repeats, Work
from measures.estimate import Interval
from measures.intervals import mean_interval
from measures.voting import CHOICES

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

SHOWN = {
    "": "everybody",
    "flagged": "flagged",
    "early": "too few votes to say",
    "paused": "paused",
    "out": "left out",
}
SORTS = {
    "flags": "flags",
    "votes": "votes",
    "name": "name",
    "agreement": "agreement, lowest first",
    "fast": "fast answers",
    "left": "left rate",
    "longer": "length preference",
    "ties": "ties",
}
_WORK = (Slot.Kind.REGULAR, Slot.Kind.GOLD)
VERSION = 2  # of the stored figures: others are computed again before a page reads them


@dataclass(frozen=True, slots=True)
class Summary:
    """People with a report, of them flagged, and of them with too few votes for any test."""

    n_people: int
    n_flagged: int
    n_early: int
    n_left_out: int
    computed_at: datetime | None


def annotators_stale() -> list[Project]:
    """Projects with votes newer than their annotators' figures, or figures of an old shape."""
    newest = newest_votes()
    seen = dict(
        AnnotatorReport.objects.filter(figures__version=VERSION)
        .order_by("project_id", "user_id")
        .distinct("project_id")
        .values_list("project_id", "figures__last_vote_id")
    )
    behind = [key for key, vote in newest.items() if (seen.get(key) or 0) < vote]
    return list(Project.objects.filter(id__in=behind, archived_at__isnull=True))


class ReportColumns(TypedDict):
    """What `reports_of` reads beside a report."""

    n_flags: int
    n_tests: int
    paused_reason: str | None
    left_out_at: datetime | None
    left_out_reason: str | None
    reliability: float | None


def reports_of(*, project: Project) -> "QuerySet[WithAnnotations[AnnotatorReport, ReportColumns]]":
    """Everybody with votes, with n_flags, n_tests, paused_reason, left_out_at and _reason."""
    annotator = Annotator.objects.filter(project=project, user=OuterRef("user"))
    membership = Membership.objects.filter(project=project, user=OuterRef("user"))
    return (
        AnnotatorReport.objects.filter(project=project, figures__version=VERSION)
        .select_related("user")
        .annotate(
            n_flags=Func("flags", function="jsonb_array_length", output_field=IntegerField()),
            n_tests=Cast(KT("figures__n_tests"), IntegerField()),
            paused_reason=Subquery(membership.values("paused_reason")[:1]),
            left_out_at=Subquery(annotator.values("left_out_at")[:1]),
            left_out_reason=Subquery(annotator.values("left_out_reason")[:1]),
            reliability=Subquery(annotator.values("reliability")[:1]),
        )
    )


def agreement_by_person(*, project: Project) -> list[tuple[float, float, int]]:
    """(agreement with the others, its standard error, pairs) of everybody who has an interval."""
    stored = AnnotatorReport.objects.filter(project=project, figures__version=VERSION)
    found = []
    for figure in stored.order_by("user").values_list("figures__agreement", flat=True):
        if figure.get("low") is None or figure.get("high") is None:
            continue
        n, value = int(figure["n"]), float(figure["value"])
        # The interval is value ± t · error, cut off at 0 and 1. Without any spread the error is
        # that of one pair that differs, as `measures.annotators.work` takes it.
        margin = max(figure["high"] - value, value - figure["low"])
        found.append((value, max(margin / float(stdtrit(n - 1, 0.975)), 1 / n), n))
    return found


def reports_list(
    *,
    project: Project,
    with_names: bool,
    search: str = "",
    show: str = "",
    least: int = 0,
    sort: str = "flags",
) -> "QuerySet[WithAnnotations[AnnotatorReport, ReportColumns]]":
    """The list as filtered; without names only numbers can be searched."""
    rows = reports_of(project=project)
    if search:
        number = search.lower().removeprefix("annotator").strip()
        found = Q(user_id=int(number)) if number.isdecimal() and len(number) < 10 else Q(pk=None)
        if with_names:
            found |= Q(user__username__icontains=search) | Q(user__display_name__icontains=search)
        rows = rows.filter(found)
    if show == "flagged":
        rows = rows.filter(n_flags__gt=0)
    elif show == "early":
        rows = rows.filter(n_tests=0)
    elif show == "paused":
        rows = rows.exclude(paused_reason="").filter(paused_reason__isnull=False)
    elif show == "out":
        rows = rows.filter(left_out_at__isnull=False)
    if least:
        rows = rows.filter(n_votes__gte=least)
    return rows.order_by(*_order(sort, with_names=with_names))


def _order(sort: str, *, with_names: bool) -> tuple[Any, ...]:
    name = Lower("user__display_name") if with_names else F("user_id").asc()
    votes = F("n_votes").desc()
    last = (votes, F("user_id").asc())
    if sort == "votes":
        return last
    if sort == "name":
        return (name, F("user_id").asc())
    if sort == "agreement":
        return (_figure("figures__agreement__value").asc(nulls_last=True), *last)
    if sort in ("fast", "left"):
        return (_figure(f"figures__{sort}__value").desc(nulls_last=True), *last)
    if sort in ("longer", "ties"):
        return (_figure(f"figures__{sort}__difference").desc(nulls_last=True), *last)
    return (F("n_flags").desc(), *last)


def _figure(path: str) -> Any:
    return Cast(KT(path), FloatField())


def summary_of(*, project: Project) -> Summary:
    counted = reports_of(project=project).aggregate(
        n=Count("pk"),
        flagged=Count("pk", filter=Q(n_flags__gt=0)),
        early=Count("pk", filter=Q(n_tests=0)),
        out=Count("pk", filter=Q(left_out_at__isnull=False)),
        at=Max("computed_at"),
    )
    return Summary(
        counted["n"], counted["flagged"], counted["early"], counted["out"], counted["at"]
    )


def flag_kinds(*, project: Project) -> list[tuple[str, int]]:
    """(label, people) of each flag there is, commonest first."""
    counted: dict[str, int] = {}
    flagged = AnnotatorReport.objects.filter(project=project).exclude(flags=[])
    for flags in flagged.values_list("flags", flat=True):
        for flag in flags:
            counted[flag["label"]] = counted.get(flag["label"], 0) + 1
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def person_of(*, project: Project, user_id: int) -> User | None:
    """Somebody with a place or a vote in the project; None for all others."""
    membership = Membership.objects.filter(project=project, user=OuterRef("pk"))
    voted = Vote.objects.filter(project=project, annotator=OuterRef("pk"))
    found = User.objects.filter(pk=user_id)
    return found.filter(Q(Exists(membership)) | Q(Exists(voted))).first()


def may_label(*, project: Project, user: User) -> bool:
    """Whether they can get pairs here, so that there is something to pause."""
    if user.is_imported or not user.is_active:
        return False
    memberships = Membership.objects.filter(project=project, user=user)
    return memberships.exclude(role=Role.ENGINEER).exists()


def annotator_of(*, project: Project, user: User) -> Annotator | None:
    """Their row in the project, which says whether they are left out; None before there is one."""
    return Annotator.objects.filter(project=project, user=user).first()


@dataclass(frozen=True, slots=True)
class Reach:
    """What leaving somebody out touches: their votes that count, the comparisons these are on, and
    how many of those no other vote is on."""

    n_votes: int
    n_comparisons: int
    n_alone: int


def reach_of(*, project: Project, user: User) -> Reach:
    mine = Vote.objects.filter(
        project=project, annotator=user, is_current=True, slot__kind__in=_WORK
    )
    another = Vote.objects.filter(
        comparison=OuterRef("comparison"), is_current=True, slot__kind__in=_WORK
    ).exclude(annotator=user)
    counted = mine.aggregate(
        n=Count("pk"),
        pairs=Count("comparison", distinct=True),
        alone=Count("pk", filter=~Exists(another)),
    )
    return Reach(counted["n"], counted["pairs"], counted["alone"])


@dataclass(frozen=True, slots=True)
class Model:
    """What the project's consensus holds of a person: its method, their reliability, P(vote |
    truth) row by row. Empty before the first fit."""

    method: str
    reliability: float | None
    confusion: list[list[float]]
    fitted_at: datetime


def model_of(*, project: Project, user: User) -> Model | None:
    consensus = Consensus.objects.filter(project=project).first()
    row = Annotator.objects.filter(project=project, user=user).first()
    if consensus is None or row is None or row.reliability is None:
        return None
    cells = row.confusion or []
    return Model(
        consensus.get_method_display(),
        row.reliability,
        [cells[start : start + 4] for start in range(0, len(cells), 4)],
        consensus.fitted_at,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair on which at least two others voted and none of them as this person did."""

    comparison: Comparison
    choice: str
    others: dict[str, int]
    cast_at: datetime


def differences_of(*, project: Project, user: User, most: int = 12) -> list[Difference]:
    """The newest such pairs among the person's last 400 votes."""
    mine = list(
        Vote.objects.filter(project=project, annotator=user, is_current=True, slot__kind__in=_WORK)
        .order_by("-cast_at", "-id")
        .values_list("comparison_id", "choice", "cast_at")[:400]
    )
    others: dict[int, dict[str, int]] = {}
    counted = (
        Vote.objects.filter(
            comparison__in=[row[0] for row in mine], is_current=True, slot__kind__in=_WORK
        )
        .exclude(annotator=user)
        .values_list("comparison_id", "choice")
        .annotate(n=Count("pk"))
    )
    for key, choice, n in counted:
        others.setdefault(key, {})[choice] = n
    found = [
        (key, choice, at)
        for key, choice, at in mine
        if sum(others.get(key, {}).values()) >= 2 and choice not in others[key]
    ][:most]
    pairs = Comparison.objects.select_related("prompt").in_bulk([row[0] for row in found])
    return [Difference(pairs[key], choice, others[key], at) for key, choice, at in found]


# Everybody's votes as arrays, for the figures about single annotators.

Ints = NDArray[np.int64]

_CODE = " ".join(f"when '{choice}' then {code}" for code, choice in enumerate(CHOICES))
_SIDE = "when 'a' then 1 when 'b' then 0 else -1"

# Work is what was asked for: places that decide, and gold pairs. Times in milliseconds.
_VOTES = f"""
select v.comparison_id, v.annotator_id::bigint, (case v.choice {_CODE} end)::bigint,
  (case v.left_is {_SIDE} end)::bigint, coalesce(v.active_ms, -1)::bigint,
  (case c.gold {_CODE} else -1 end)::bigint, (c.stratum = 'random')::int::bigint,
  (extract(epoch from v.cast_at) * 1000)::bigint, v.id
from labeling_vote v
join labeling_slot s on s.id = v.slot_id
join labeling_comparison c on c.id = v.comparison_id
where v.project_id = %(project)s and v.is_current and s.kind in ('regular', 'gold')
"""  # noqa: S608

_REPEATS = f"""
select v.annotator_id::bigint, (case f.choice {_CODE} end)::bigint,
  (case v.choice {_CODE} end)::bigint, (case f.left_is {_SIDE} end)::bigint,
  (case v.left_is {_SIDE} end)::bigint
from labeling_slot s
join labeling_vote v on v.slot_id = s.id and v.is_current
join labeling_vote f on f.id = s.measures_id
join labeling_slot o on o.id = f.slot_id and o.kind <> 'discard'
where s.project_id = %(project)s and s.kind = 'repeat'
"""  # noqa: S608

# Characters of what an answer says, all its turns together, without what tools gave back.
_LENGTHS = """
with said as materialized (
  select r.id, coalesce(sum(length(turn ->> 'content'))
    filter (where turn ->> 'role' <> 'tool'), 0) as n
  from labeling_response r
  join labeling_prompt p on p.id = r.prompt_id
  cross join lateral jsonb_array_elements(r.messages) turn
  where p.project_id = %(project)s
  group by r.id
)
select c.id, sign(coalesce(a.n, 0) - coalesce(b.n, 0))::bigint
from labeling_comparison c
left join said a on a.id = c.response_a_id
left join said b on b.id = c.response_b_id
where c.project_id = %(project)s
"""


@dataclass(frozen=True, slots=True)
class AnnotatorVotes:
    """people: (J,) user ids, ascending, which `work.who` and `repeats.who` number."""

    people: Ints
    work: Work
    repeats: Repeats


def annotator_votes(*, project: Project) -> AnnotatorVotes:
    """One read of the project's votes; rows in the order in which votes were cast."""
    values: dict[str, Any] = {"project": project.pk}
    columns = int_columns(_VOTES, values, n=9)
    order = np.lexsort((columns[8], columns[7]))
    pair, person, choice, a_left, ms, gold, random, at, _ = (column[order] for column in columns)
    people, who = np.unique(person, return_inverse=True)
    ids, place = np.unique(pair, return_inverse=True)
    sign = _a_longer(values, ids)[place]
    chose = np.where(choice <= 1, choice == 0, -1)  # 1 A, 0 B, −1 neither
    work = Work(
        who=who,
        pair=place,
        choice=choice,
        left=_same(chose, a_left),
        longer=_same(chose, np.where(sign == 0, -1, sign > 0)),
        active_ms=ms,
        gold=gold,
        random=random == 1,
        n_people=len(people),
        ordered=_ordered(who, at, len(people)),
    )
    return AnnotatorVotes(people, work, _repeats(values, people))


def _same(chose: Ints, a: Ints) -> Ints:
    """1 where the chosen answer is the one that `a` says of A (1 yes, 0 no), −1 where unknown."""
    return np.where((chose < 0) | (a < 0), -1, chose == a).astype(np.int64)


def _a_longer(values: dict[str, Any], ids: Ints) -> Ints:
    """Of these comparisons: 1 where A is longer, −1 where B is, 0 where neither."""
    keys, signs = int_columns(_LENGTHS, values, n=2)
    order = np.argsort(keys)
    return signs[order][np.searchsorted(keys[order], ids)] if len(ids) else ids


def _ordered(who: Ints, at: Ints, n_people: int) -> NDArray[np.bool_]:
    """People whose votes have times of their own: an import without times gives all the same."""
    order = np.argsort(who, kind="stable")  # rows come by time, so each person's stay so
    person, moment = who[order], at[order]
    new = np.ones(len(who), dtype=bool)
    new[1:] = (person[1:] != person[:-1]) | (moment[1:] != moment[:-1])
    distinct = np.bincount(person[new], minlength=n_people)
    return 2 * distinct > np.bincount(who, minlength=n_people)


def _repeats(values: dict[str, Any], people: Ints) -> Repeats:
    person, first, again, first_a, again_a = int_columns(_REPEATS, values, n=5)
    known = np.isin(person, people)
    who = np.searchsorted(people, person[known])
    first, again = first[known], again[known]

    def left(choice: Ints, a_left: Ints) -> Ints:
        return _same(np.where(choice <= 1, choice == 0, -1), a_left)

    return Repeats(who, first, again, left(first, first_a[known]), left(again, again_a[known]))


# What a person may know of their own agreement: of votes that are a day old, so that looking cannot
# steer one that is still being thought about.
_OWN = """
with mine as (
  select v.comparison_id, v.choice from labeling_vote v
  join labeling_slot s on s.id = v.slot_id and s.kind = 'regular'
  where v.project_id = %(project)s and v.annotator_id = %(annotator)s and v.is_current
    and v.cast_at < %(before)s
  order by v.cast_at desc limit %(most)s
)
select o.share from mine m cross join lateral (
  select avg((o.choice = m.choice)::int)::float8 as share, count(*) as n
  from labeling_vote o join labeling_slot t on t.id = o.slot_id and t.kind = 'regular'
  where o.comparison_id = m.comparison_id and o.is_current
    and o.annotator_id <> %(annotator)s and o.cast_at < %(before)s
) o where o.n > 0
"""
LEAST_SHARED = 20  # pairs that others judged too, under which no figure is given
MOST_SHARED = 500  # of the newest


def own_agreement(*, project: Project, user: User) -> Interval:
    """How often others chose as this person did, over their newest pairs."""
    with connection.cursor() as cursor:
        cursor.execute(
            _OWN,
            {
                "project": project.pk,
                "annotator": user.pk,
                "before": timezone.now() - DELAY,
                "most": MOST_SHARED,
            },
        )
        shares = [row[0] for row in cursor.fetchall()]
    if len(shares) < LEAST_SHARED:
        return Interval(value=None, low=None, high=None, n=len(shares), undefined="too few")
    return mean_interval(shares)
