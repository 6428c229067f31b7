"""The newest vote of a project, without a look at the votes of others."""

import pytest
from django.db import connection
from django.db.models import Max, Value
from django.db.models.functions import Concat

from apps.accounts.models import Project, User
from apps.labeling.models import Vote
from apps.labeling.selectors.projects import NEWEST_VOTE, newest_vote_of, newest_votes
from tests.agreement.crowd import disputed_make

pytestmark = pytest.mark.django_db


def test_each_project_has_its_own_newest_vote_and_one_without_votes_none(project: Project) -> None:
    others = [Project.objects.create(slug=slug, name=slug) for slug in ("first", "last", "empty")]
    for one in (others[0], project, others[1]):
        disputed_make(one, n=2, votes="ab")
        people = User.objects.filter(username__startswith="annotator-")
        people.update(username=Concat(Value(f"{one.slug}-"), "username"))
    by_hand = dict(
        Vote.objects.values_list("project").annotate(newest=Max("id")).order_by("project")
    )
    assert len(by_hand) == 3
    assert newest_votes() == by_hand
    assert [newest_vote_of(project=one) for one in others] == [
        *(by_hand[one.pk] for one in others[:2]),
        0,
    ]


def test_it_is_read_at_the_end_of_an_index(project: Project) -> None:
    disputed_make(project, n=2, votes="ab")
    statement = NEWEST_VOTE.format(project="%(project)s")
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off")
        cursor.execute("set local enable_sort = off")
        cursor.execute(f"explain {statement}", {"project": project.pk})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Only Scan Backward using vote_newest" in plan or (
        "Index Scan Backward using vote_newest" in plan
    ), plan
    assert "Index Cond: (ROW(project_id, id) <= ROW(" in plan, plan
