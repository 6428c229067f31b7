"""What belongs to another project is unknown under one's own address, whatever one's role."""

import pytest
from django.test import Client

from apps.accounts.models import Project, Role, User
from apps.labeling.models import Comparison, Task, Vote
from apps.labeling.services.task_rows import tasks_import
from tests.labeling.pairs import leased, pairs_make, vote
from tests.people import person_make

CLOSED = {403, 404}


@pytest.fixture
def elsewhere(db: None) -> dict[str, object]:
    """A project with a vote, a lease and a rating task of Ben's."""
    project = Project.objects.create(slug="other", name="Other")
    ben = person_make("Ben", project, Role.ANNOTATOR)
    pairs_make(project, 3)
    answer = vote(project, ben).vote
    row = {"id": "t1", "prompt": "p", "responses": ["a", "b"], "kind": "graded"}
    tasks_import(project=project, rows=[row])
    return {
        "project": project,
        "ben": ben,
        "vote": answer.pk,
        "lease": leased(project, ben),
        "comparison": answer.comparison_id,
        "task": Task.objects.exclude(kind="pair").get(project=project).pk,
    }


@pytest.mark.parametrize("name", ["ana", "rita", "emil", "ada"])
def test_numbers_of_another_project_lead_nowhere(
    name: str, elsewhere: dict, signed_in, request: pytest.FixtureRequest
) -> None:
    person: User = request.getfixturevalue(name)
    client: Client = signed_in(person)
    lease = elsewhere["lease"]
    for path in (
        f"label/?answer={elsewhere['vote']}",
        f"comparisons/{elsewhere['comparison']}/",
        f"annotators/{elsewhere['ben'].pk}/",
        f"ratings/{elsewhere['task']}/",
    ):
        assert client.get(f"/p/arguments/{path}").status_code in CLOSED, path
    held = {"slot": lease.slot, "key": lease.key}
    for path, sent in (
        ("label/vote/", held | {"answer": "left"}),
        ("label/skip/", held | {"reason": "Prompt is unclear"}),
        (f"answers/{elsewhere['vote']}/revise/", {"key": "k", "answer": "left"}),
        (f"answers/{elsewhere['vote']}/withdraw/", {}),
        (f"comparisons/{elsewhere['comparison']}/state/", {"action": "drop"}),
    ):
        assert client.post(f"/p/arguments/{path}", sent).status_code in CLOSED, path
    assert Vote.objects.filter(project=elsewhere["project"]).count() == 1
    assert set(
        Comparison.objects.filter(project=elsewhere["project"]).values_list("state", flat=True)
    ) == {"open"}


def test_the_label_page_does_not_tell_what_a_pair_is_for(
    project: Project, ana: User, signed_in
) -> None:
    pairs_make(project, 1)
    page = signed_in(ana).get("/p/arguments/label/").content.decode().lower()
    for word in ("regular", "gold", "repeat", "audit", "stratum", "priority"):
        assert word not in page
