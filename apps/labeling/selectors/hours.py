"""Who worked how much in which month, for pay; and the code that says that somebody is done.

Paid work is what a person was handed and answered: votes, ratings and written texts by their first
revision, gold pairs, hidden repeats and audits too. Time is active time, as each page measured it,
revisions included. Months are of UTC.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.conf import settings
from django.db import connection

from apps.accounts.models import Project, User
from apps.common.transactions import rows_named
from apps.labeling.models import LabelingSettings, Slot, Vote
from apps.labeling.selectors import answers_count, settings_get

_HOURS = """
select u.id as user, u.username, u.display_name as name, w.month, sum(w.vote)::int as votes,
       sum(w.rating)::int as ratings, sum(w.text)::int as texts,
       (coalesce(sum(w.ms), 0) / 3600000.0)::float8 as hours,
       count(*) filter (where w.ms is null)::int as untimed, sum(w.discarded)::int as discarded
from (
  select v.annotator_id, date_trunc('month', v.cast_at at time zone 'utc')::date as month,
         (v.revision = 1)::int as vote, 0 as rating, 0 as text, v.active_ms as ms,
         (v.is_current and v.slot_id in (
           select s.id from labeling_slot s
           where s.project_id = %(project)s and s.kind = 'discard'))::int as discarded
  from labeling_answer v
  where v.project_id = %(project)s and v.kind in ('pair', 'blind')
    and v.source not in ('import', 'sim')
    and (%(user)s::bigint is null or v.annotator_id = %(user)s)
  union all
  select r.annotator_id, date_trunc('month', r.cast_at at time zone 'utc')::date, 0,
         (r.revision = 1)::int, 0, r.active_ms, 0
  from labeling_answer r
  where r.project_id = %(project)s and r.kind in ('grade', 'rank')
    and (%(user)s::bigint is null or r.annotator_id = %(user)s)
  union all
  select t.author_id, date_trunc('month', t.submitted_at at time zone 'utc')::date, 0, 0,
         (not exists (select from labeling_writtenversion e where e.text_id = t.text_id
                      and e.author_id = t.author_id and e.number < t.number))::int, t.active_ms, 0
  from labeling_writtenversion t
  where t.project_id = %(project)s and t.edits_id is null and t.source <> 'sim'
    and (%(user)s::bigint is null or t.author_id = %(user)s)
) w join accounts_user u on u.id = w.annotator_id
where %(month)s::date is null or w.month = %(month)s
group by u.id, w.month order by w.month desc, u.username
"""
COLUMNS = (
    *("month", "username", "name", "votes", "ratings", "texts", "hours", "untimed", "discarded"),
    *("amount", "currency"),
)


@dataclass(frozen=True, slots=True)
class Month:
    """One person's month. untimed: answers whose time is not known; discarded: votes that an admin
    set aside since; amount: votes by the project's price, None where none is stated."""

    user: int
    username: str
    name: str
    month: date
    votes: int
    ratings: int
    texts: int
    hours: float
    untimed: int
    discarded: int
    amount: float | None
    currency: str

    def as_row(self) -> dict[str, Any]:
        """As `COLUMNS`, for a spreadsheet."""
        row = {name: getattr(self, name) for name in COLUMNS}
        return row | {"month": f"{self.month:%Y-%m}", "hours": round(self.hours, 4)}


def hours_of(
    *, project: Project, user: User | None = None, month: date | None = None
) -> list[Month]:
    """Newest month first; of everybody, or of one person."""
    chosen = settings_get(project=project)
    values = {"project": project.pk, "user": user.pk if user else None, "month": month}
    with connection.cursor() as cursor:
        cursor.execute(_HOURS, values)
        return list(_months(rows_named(cursor), chosen))


def _months(rows: list[dict[str, Any]], chosen: LabelingSettings) -> Iterator[Month]:
    for row in rows:
        amount = round(row["votes"] * chosen.vote_price, 2) if chosen.vote_price else None
        yield Month(**row, amount=amount, currency=chosen.currency if chosen.vote_price else "")


# The code of somebody who has done their share: what a crowd vendor asks for before paying.

DONE = ("yours_done", "all_done")  # there is nothing left for this person


def completion_code(*, project: Project, user: User) -> str:
    """Always the same for one person in one project, and nobody can guess another's."""
    secret = hashlib.sha256(b"labeling.completion:" + settings.SECRET_KEY.encode()).digest()
    mac = hmac.new(secret, f"{project.pk}.{user.pk}".encode(), hashlib.sha256).digest()
    text = base64.b32encode(mac).decode()[:12]
    return "-".join((text[:4], text[4:8], text[8:]))


@dataclass(frozen=True, slots=True)
class Completion:
    """wanted: answers that earn the code, 0 where the project has none; code: "" until earned."""

    wanted: int
    answers: int
    code: str


def completion_of(
    *, project: Project, user: User, wanted: int | None = None, nothing: str = ""
) -> Completion:
    """How far somebody is. nothing: the code of why they get no pair, where that is known: who has
    answered all that was left for them has earned it too."""
    if wanted is None:
        wanted = settings_get(project=project).completion_votes
    if not wanted:
        return Completion(0, 0, "")
    answers = answers_count(project=project, annotator=user)
    earned = answers >= wanted or (answers > 0 and nothing in DONE)
    code = completion_code(project=project, user=user) if earned else ""
    return Completion(wanted, answers, code)


@dataclass(frozen=True, slots=True)
class Completed:
    """Whose code it is, how many answers of theirs stand, and how many were discarded since."""

    user: User
    answers: int
    discarded: int
    wanted: int


def completion_check(*, project: Project, code: str) -> Completed | None:
    """Whose code this is, earned or not; None where it is nobody's who has answered here."""
    given = "".join(c for c in code.upper() if c.isalnum())
    voted = Vote.objects.filter(project=project).exclude(source=Vote.Source.IMPORT)
    people = User.objects.filter(pk__in=voted.values("annotator"))
    for user in people.iterator():
        own = completion_code(project=project, user=user).replace("-", "")
        if hmac.compare_digest(own.encode(), given.encode()):
            mine = voted.filter(annotator=user, is_current=True)
            return Completed(
                user=user,
                answers=mine.count(),
                discarded=mine.filter(slot__kind=Slot.Kind.DISCARD).count(),
                wanted=settings_get(project=project).completion_votes,
            )
    return None
