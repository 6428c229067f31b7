"""The demo's project of agents and images."""

import pytest

from apps.accounts.models import User
from apps.labeling.models import StoredImage, Task
from apps.labeling.services import slot_lease_next
from apps.labeling.services.results import Lease
from apps.loop.demo_runs import PICTURES, RUNS, runs_project

pytestmark = pytest.mark.django_db


def test_it_is_made_once_and_can_be_labeled() -> None:
    people = {
        name: User.objects.create_user(f"demo-{name}", is_superuser=name == "ada")
        for name in ("ana", "rita", "emil", "ada")
    }
    project = runs_project(people)
    assert project is not None
    tasks = Task.objects.filter(project=project)
    assert tasks.count() == len(RUNS) + len(PICTURES)
    assert tasks.filter(of_agents=True).count() == len(RUNS)
    assert StoredImage.objects.filter(project=project).count() == len(PICTURES)
    assert runs_project(people) is None
    assert isinstance(slot_lease_next(project=project, annotator=people["ada"]), Lease)
