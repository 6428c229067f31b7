"""The list of comparisons: which fit, in which order, a page of them, and what stands beside one.

Made for a million. A page is found by walking the index of its order from where the last one ended,
so the last page costs what the first does. Where a filter keeps few of the rows that would be
walked, everything that fits is read by its own index instead and sorted. Counts end at `COUNTED`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib.postgres.search import SearchQuery
from django.db import OperationalError, connection, transaction
from django.db.models import BooleanField, F, Func, Lookup, Q, QuerySet, Value
from django.db.models.lookups import (
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
from django.utils.dateparse import parse_datetime
from psycopg.errors import QueryCanceled

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Facet, SavedView, SearchPending, Vote

COUNTED = 10_000  # that or more is shown as "10,000+"
COUNT_WITHIN = "150ms"
_WALKED = 20_000  # rows of an order that are looked through before its filter is read by index
_ALL = 10**9  # a limit that keeps the planner from walking the order all the same
MOST_VALUES = 200  # of a filter, that a page offers to choose from

# What the heads of the list sort by; "-" before it for descending.
SORTS = {
    "time": "created_at",
    "id": "id",
    "state": "state",
    "votes": "n_votes",
    "priority": "priority",
}
NEWEST = "-time"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which comparisons; what is empty does not narrow. `votes`: exactly so many count."""

    search: str = ""
    state: str = ""
    stratum: str = ""
    winner: str = ""
    annotator: int | None = None
    batch: str = ""
    topic: str = ""
    model: str = ""
    flag: str = ""
    votes: int | None = None
    since: date | None = None
    until: date | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) not in ("", None) for field in fields(self))


def comparisons_matching(*, project: Project, wanted: Wanted) -> QuerySet[Comparison]:
    """All that fit, in no order."""
    rows = Comparison.objects.filter(project=project)
    for name, value in (("state", wanted.state), ("stratum", wanted.stratum)):
        if value:
            rows = rows.filter(**{name: value})
    if wanted.winner:
        rows = rows.filter(decision__project=project, decision__winner=wanted.winner)
    if wanted.votes is not None:
        rows = rows.filter(n_votes=wanted.votes)
    if wanted.batch:
        rows = rows.filter(batch=wanted.batch)
    if lexemes := _lexemes(project, wanted):
        rows = rows.filter(words__document=_Lexemes(lexemes))
    votes = Vote.objects.filter(project=project, is_current=True).values("comparison")
    if wanted.annotator is not None:
        rows = rows.filter(pk__in=votes.filter(annotator=wanted.annotator))
    if wanted.flag:
        rows = rows.filter(pk__in=votes.filter(~Q(flags=[]), flags__contains=[wanted.flag]))
    return rows.filter(**_span(project, wanted))


@dataclass(frozen=True, slots=True)
class Page:
    """`before` and `after` go into the address of the pages beside it; empty where there is none.
    `n`: how many fit, at most `COUNTED` + 1; None where counting takes too long."""

    rows: list[Comparison]
    before: str
    after: str
    n: int | None

    @property
    def n_words(self) -> str:
        if self.n is None:
            return f"{len(self.rows):,}+"
        return f"{COUNTED:,}+" if self.n > COUNTED else f"{self.n:,}"


def comparisons_page(
    *, project: Project, wanted: Wanted, sort: str = NEWEST, at: str = "", size: int = 50
) -> Page:
    """`at`: "" for the first page, "end" for the last, else `before` or `after` of another."""
    order = _Order.of(sort, backwards=at == "end" or at.startswith("<"))
    start = order.start(at)
    if at not in ("", "end") and start is None:
        order = _Order.of(sort)
    keys, n = _keys(project, wanted, order, start, size + 1)
    if n is None or start is not None:
        n = _count_soon(project, wanted)
    more, keys = len(keys) > size, keys[:size]
    if order.backwards:
        keys.reverse()
        has_before, has_after = more, at != "end"
    else:
        has_before, has_after = start is not None, more
    found = Comparison.objects.select_related(
        "prompt", "response_a", "response_b", "decision"
    ).in_bulk([pk for _, pk in keys])
    return Page(
        rows=[found[pk] for _, pk in keys if pk in found],
        before=f"<{_written(keys[0])}" if keys and has_before else "",
        after=f">{_written(keys[-1])}" if keys and has_after else "",
        n=n,
    )


def _count_soon(project: Project, wanted: Wanted) -> int | None:
    """Words are looked for in every text that may have them all: for common ones that takes longer
    than a number is worth, for a phrase of them seconds."""
    if not wanted.search:
        return comparisons_count(project=project, wanted=wanted)
    with connection.cursor() as cursor:
        try:
            with transaction.atomic():
                cursor.execute("select set_config('statement_timeout', %s, true)", [COUNT_WITHIN])
                n = comparisons_count(project=project, wanted=wanted)
                cursor.execute("set local statement_timeout to default")
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            return None
    return n


def comparisons_count(*, project: Project, wanted: Wanted, most: int = COUNTED) -> int:
    """How many fit, at most one more than `most`."""
    return comparisons_matching(project=project, wanted=wanted).values("pk")[: most + 1].count()


def comparisons_beside(
    *, project: Project, wanted: Wanted, sort: str, comparison: Comparison
) -> tuple[int | None, int | None]:
    """The ids before and after one in the list; None at its ends."""
    ends = []
    for backwards in (True, False):
        order = _Order.of(sort, backwards=backwards)
        start = (getattr(comparison, order.field), comparison.pk)
        keys, _ = _keys(project, wanted, order, start, 1)
        ends.append(next((pk for _, pk in keys), None))
    return ends[0], ends[1]


def facets_of(*, project: Project) -> dict[str, list[str]]:
    """{kind: values that comparisons have}; one more than `MOST_VALUES` where there are more."""
    return {
        kind: list(
            Facet.objects.filter(project=project, kind=kind)
            .order_by("value")
            .values_list("value", flat=True)[: MOST_VALUES + 1]
        )
        for kind in Facet.Kind.values
    }


def voters_of(*, project: Project) -> list[User]:
    """The people of the project; one more than `MOST_VALUES` where there are more."""
    people = User.objects.filter(memberships__project=project)
    return list(people.order_by("username")[: MOST_VALUES + 1])


def views_of(*, project: Project, user: User) -> list[SavedView]:
    """One's own and the shared ones, by name."""
    mine = Q(owner=user) | Q(is_shared=True)
    views = SavedView.objects.filter(mine, project=project).select_related("owner")
    return list(views.order_by("name", "pk"))


def pending_count(*, project: Project) -> int:
    """About how many comparisons are not found by their words yet."""
    ranges = SearchPending.objects.filter(project=project).values_list("first", "last")
    return sum(last - first + 1 for first, last in ranges)


# --- order and place ------------------------------------------------------------------------------

_Key = tuple[Any, int]  # the value sorted by, and the id


@dataclass(frozen=True, slots=True)
class _Order:
    field: str
    descending: bool  # as it is read, which for a page before another is the other way round
    backwards: bool

    @classmethod
    def of(cls, sort: str, *, backwards: bool = False) -> "_Order":
        name = sort.removeprefix("-")
        if name not in SORTS:
            sort, name = NEWEST, NEWEST.removeprefix("-")
        return cls(SORTS[name], sort.startswith("-") != backwards, backwards)

    @property
    def names(self) -> list[str]:
        sign = "-" if self.descending else ""
        return [f"{sign}{name}" for name in dict.fromkeys((self.field, "id"))]

    def after(self, key: _Key) -> Lookup:
        return (LessThan if self.descending else GreaterThan)(*self._beside(key))

    def up_to(self, key: _Key) -> Lookup:
        return (GreaterThanOrEqual if self.descending else LessThanOrEqual)(*self._beside(key))

    def _beside(self, key: _Key) -> tuple[Func, Func]:
        """Compared as rows, so that the index of the order is entered at the key."""
        return _row(F(self.field), F("id")), _row(*map(Value, key))

    def start(self, at: str) -> _Key | None:
        value, _, pk = at[1:].rpartition("~")
        if at[:1] not in ("<", ">") or not (pk.isascii() and pk.isdigit() and len(pk) < 19):
            return None
        try:
            return _READ[self.field](value), int(pk)
        except (TypeError, ValueError):
            return None


def _time_read(text: str) -> datetime:
    found = parse_datetime(text)
    if found is None or found.tzinfo is None:
        raise ValueError(text)
    return found


_READ: dict[str, Callable[[str], Any]] = {
    "created_at": _time_read,
    "id": int,
    "state": str,
    "n_votes": int,
    "priority": float,
}


def _written(key: _Key) -> str:
    value, pk = key
    return f"{value.isoformat() if isinstance(value, datetime) else value}~{pk}"


def _row(*parts: Any) -> Func:
    return Func(*parts, function="ROW", output_field=BooleanField())


def _keys(
    project: Project, wanted: Wanted, order: _Order, start: _Key | None, n: int
) -> tuple[list[_Key], int | None]:
    """The first n that fit, from `start` on, as the order is read; how many there are in all, where
    that came with them."""

    def read(rows: QuerySet[Comparison], place: slice) -> list[_Key]:
        rows = rows if start is None else rows.filter(order.after(start))
        return list(rows.order_by(*order.names).values_list(order.field, "id")[place])

    walked = Comparison.objects.filter(project=project)
    if not wanted:
        return read(walked, slice(n)), None
    matching = comparisons_matching(project=project, wanted=wanted)
    if order.field == "created_at":
        walked = walked.filter(**_span(project, wanted))
    # One person answered few of many: to read all theirs with their texts would take longest.
    with_texts = wanted.annotator is not None and wanted.search
    far = 4 * _WALKED if with_texts else _WALKED
    end = read(walked, slice(far, far + 1))
    if not end:
        return read(matching, slice(n)), None
    # What is found by votes alone is read as a whole for the count in any case, in no order.
    n_all = None
    by_votes = wanted.annotator is not None or wanted.flag
    if start is None and by_votes and not with_texts:
        keys, n_all = _sorted(matching, order, n, most=COUNTED + 1)
        if n_all <= COUNTED:
            return keys, n_all
    near = read(matching.filter(order.up_to(end[0])), slice(n))
    if len(near) == n:
        return near, n_all
    return _sorted(matching if start is None else matching.filter(order.after(start)), order, n)


def _sorted(
    matching: QuerySet[Comparison], order: _Order, n: int, *, most: int = _ALL
) -> tuple[list[_Key], int]:
    """The first n of at most `most`, and how many these are: found by the indexes of what they
    match before they are sorted. (As `id in (…)` the planner would read the whole table.)"""
    found, values = matching.values_list(order.field, "id")[:most].query.sql_with_params()
    way = "desc" if order.descending else "asc"
    with connection.cursor() as cursor:
        cursor.execute(
            f"select value, id, count(*) over () from ({found}) t(value, id)"  # noqa: S608
            f" order by value {way}, id {way} limit {n}",
            values,
        )
        rows = cursor.fetchall()
    return [(value, pk) for value, pk, _ in rows], rows[0][2] if rows else 0


# --- what is searched -----------------------------------------------------------------------------


class _Lexemes(SearchQuery):
    """Lexemes as they are stored; `to_tsquery` would take those with signs apart."""

    template = "(%(expressions)s)::tsquery"

    def __init__(self, text: str) -> None:
        super().__init__(text, search_type="raw")

    def as_sql(self, *where: Any, **more: Any) -> Any:
        return super().as_sql(*where, **more | {"template": self.template})


_PIECES = re.compile(r'"([^"]*)"?|(\S+)')
_SHORTEST_PREFIX = 3  # letters; a shorter word is looked for as it is


def _lexemes(project: Project, wanted: Wanted) -> str:
    """The tsquery of search, topic and model; empty where none is wanted."""
    parts = [_quoted("t", wanted.topic)] if wanted.topic else []
    parts += [_quoted("m", wanted.model)] if wanted.model else []
    if wanted.search:
        own = _quoted("i", wanted.search.lower())
        words = _words(wanted.search)
        parts.append(f"({words} | {own})" if words else own)
    return " & ".join([*parts, _quoted("p", project.pk)]) if parts else ""


def _words(search: str) -> str:
    """All the words and phrases of a search, the last of each group without quotes as a prefix."""
    pieces = [(found[1] is None, found[1] or found[2] or "") for found in _PIECES.finditer(search)]
    with connection.cursor() as cursor:
        cursor.execute(
            "select concord_words(t) from unnest(%s::text[]) with ordinality u(t, n) order by n",
            [[text for _, text in pieces]],
        )
        split = [row[0].split() for row in cursor.fetchall()]
    return " & ".join(
        f"({_phrase(words, prefix)})"
        for (prefix, _), words in zip(pieces, split, strict=True)
        if words
    )


def _phrase(words: Sequence[str], prefix: bool) -> str:
    text = " <-> ".join(f"'{word}'" for word in words)
    return f"{text}:*" if prefix and len(words[-1]) >= _SHORTEST_PREFIX else text


def _quoted(kind: str, value: str) -> str:
    plain = value.replace("\\", "\\\\").replace("'", "''")
    return f"'={kind}:{plain}'"


def _span(project: Project, wanted: Wanted) -> dict[str, datetime]:
    """Between when the comparisons came that can fit: by the dates asked for, and by what is known
    of import, topic and model."""
    first = [datetime.combine(wanted.since, time(), UTC)] if wanted.since else []
    last = []
    if wanted.until and wanted.until < date.max:
        last.append(datetime.combine(wanted.until + timedelta(days=1), time(), UTC))
    asked = Q()
    for kind in Facet.Kind.values:
        if value := getattr(wanted, kind):
            asked |= Q(kind=kind, value=value)
    if asked:
        for known in Facet.objects.filter(asked, project=project):
            first.append(known.first_at)
            last.append(known.last_at)
    return ({"created_at__gte": max(first)} if first else {}) | (
        {"created_at__lt": min(last)} if last else {}
    )
