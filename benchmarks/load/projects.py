"""Projects to play in, and whether what they hold afterwards is what was acknowledged.

Django must be set up before this is imported.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.hashers import make_password
from django.contrib.sessions.backends.cached_db import SessionStore
from django.db import connection
from django.utils.crypto import get_random_string

from apps.accounts.models import Membership, Project, User
from apps.accounts.services import token_create
from apps.labeling import services
from apps.labeling.models import Annotator, Vote

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "comparisons.jsonl.gz"
PASSWORD = "as-fast-as-they-can"  # noqa: S105 - opens the benchmark's own, temporary site
_TEXTS = 7  # shipped arguments to an answer: about 1,500 characters


@dataclass(frozen=True, slots=True)
class Played:
    """A project and the people who vote in it."""

    project: Project
    annotators: list[User]


def project_make(slug: str, *, pairs: int, annotators: int) -> Played:
    """A project with default settings, `pairs` comparisons of answers in Markdown, its people."""
    project = Project.objects.create(slug=slug, name=f"Benchmark {slug}")
    services.labeling_set_up(project=project)
    report = services.comparisons_import(project=project, rows=rows(pairs))
    assert report.n_created == pairs, report.problems[:3]
    # One hash for all: hashing is slow on purpose, and the time of signing in is not measured.
    password = make_password(PASSWORD)
    people = User.objects.bulk_create(
        User(username=f"{slug}-{number}", password=password) for number in range(annotators)
    )
    Membership.objects.bulk_create(
        Membership(project=project, user=user, role="annotator") for user in people
    )
    Annotator.objects.bulk_create(
        Annotator(project=project, user=user, acknowledged_version=1) for user in people
    )
    return Played(project, people)


def tokens(people: list[User]) -> list[str]:
    """A token to label with for each."""
    return [
        token_create(user=user, name="benchmark", scopes=["label"], days=1)[1] for user in people
    ]


def signed_in(user: User) -> tuple[dict[str, str], str]:
    """The cookies of a browser in which this person has signed in, and its CSRF token."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    csrf = get_random_string(32)
    cookies = {
        settings.SESSION_COOKIE_NAME: str(session.session_key),
        settings.CSRF_COOKIE_NAME: csrf,
    }
    return cookies, csrf


def rows(n: int) -> list[dict[str, str]]:
    """n rows of the length of real answers: shipped arguments as paragraphs and list entries."""
    with gzip.open(SHIPPED, "rt") as lines:
        shipped = [json.loads(line) for line in lines]
    texts = [row[name].strip() for row in shipped for name in ("response_a", "response_b")]

    def answer(start: int) -> str:
        chosen = [texts[(start + k) % len(texts)] for k in range(_TEXTS)]
        entries = "\n".join(f"- {text}" for text in chosen[2:-1])
        return f"{chosen[0]}\n\n**{chosen[1]}**\n\n{entries}\n\n{chosen[-1]}"

    return [
        {
            "id": str(number),
            "prompt": f"{shipped[number % len(shipped)]['prompt']}\n\nDraft {number}.",
            "response_a": answer(number * 3),
            "response_b": answer(number * 3 + len(texts) // 2),
        }
        for number in range(n)
    ]


def checked(
    project: Project, acknowledged: list[int], *, since: int | None = None
) -> dict[str, Any]:
    """Counts of what must not be, all zero, and of what was compared; raises when one is not.
    since: the votes up to this one were there before.

    A comparison's overlap is the number of votes it is to get, extra votes of contested pairs
    included; the project's `max_overlap` bounds it.
    """
    votes = Vote.objects.filter(project=project, pk__gt=since or 0)
    stored = set(votes.values_list("id", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(_FAULTS, {"project": project.pk})
        columns = [column.name for column in cursor.description]
        found = dict(zip(columns, cursor.fetchone(), strict=True))
    faults = found | {
        "acknowledged twice": len(acknowledged) - len(set(acknowledged)),
        "acknowledged but not stored": len(set(acknowledged) - stored),
        "stored but not acknowledged": len(stored - set(acknowledged)),
    }
    if any(faults.values()):
        raise AssertionError(f"{project.slug}: {faults}")
    return {"votes": len(stored), "faults": sum(faults.values())}


_FAULTS = """
with per_comparison as (
  select v.comparison_id, count(*) as votes, count(distinct v.annotator_id) as people
  from labeling_vote v where v.project_id = %(project)s and v.is_current
  group by v.comparison_id
)
select
  count(*) filter (where p.votes > c.overlap) as "more votes than the overlap",
  count(*) filter (where c.overlap > l.max_overlap) as "overlap above the project's most",
  count(*) filter (where p.votes <> p.people) as "an annotator twice on a comparison",
  count(*) filter (where p.votes <> c.n_votes) as "a wrong count of votes",
  count(*) filter (where p.votes <> (
    select count(*) from labeling_slot s
    where s.task_id = c.id and s.state = 'done')) as "votes without a slot of their own"
from per_comparison p
join labeling_comparison c on c.id = p.comparison_id
join labeling_labelingsettings l on l.project_id = c.project_id
"""
