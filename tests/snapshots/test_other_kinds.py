"""Gradings and rankings beside pairs: statistics of votes never see them, and the pairs that are
made of them reach datasets with their provenance."""

import json
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.agreement.services.reports import report_refresh
from apps.labeling.models import Answer, Comparison, Decision, LabelingSettings, Slot, Task, Vote
from apps.labeling.services import slot_lease_next, vote_cast
from apps.labeling.services.pairs_of_answers import pairs_make
from tests.labeling.pairs import annotators_make, tasks_make
from tests.snapshots.test_freezing import folder, freeze, rows

pytestmark = pytest.mark.django_db
EXACT = {"repeat_share": 0, "gold_share": 0, "random_share": 0.001}


def figures(project: Project, emil: User) -> dict[str, Any]:
    """Everything that is counted of the votes on a project's pairs."""
    report = report_refresh(project=project)
    report.refresh_from_db()
    snapshot = freeze(project, emil, heldout_annotators=0.0)
    left_out = ("id", "created_at", "updated_at", "computed_at", "seconds")
    columns = {f.name: getattr(report, f.attname) for f in report._meta.concrete_fields}
    columns["figures"] = {k: v for k, v in columns["figures"].items() if k != "seconds"}
    return {
        "report": {name: value for name, value in columns.items() if name not in left_out},
        "decisions": list(Decision.objects.order_by("pk").values()),
        "comparisons": list(Comparison.objects.order_by("pk").values()),
        "votes": list(Vote.objects.order_by("pk").values()),
        "frozen": (snapshot.sha256, json.loads((folder(snapshot) / "manifest.json").read_text())),
    }


def test_grades_and_ranks_change_no_statistic_decision_or_dataset_of_pairs(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    before = figures(project, emil)
    tasks_make(project, n=3, k=4, overlap=2, priority=1, settings=EXACT)
    tasks_make(project, n=3, k=3, overlap=2, priority=1, kind="rank", name="rank")
    for person in annotators_make(project, 2):
        for _ in range(6):
            task_rate(project, person)
    assert Answer.objects.exclude(kind="pair").count() == 12
    assert figures(project, emil) == before


def test_pairs_made_of_grades_and_ranks_are_frozen_with_where_they_come_from(
    project: Project, ana: User, emil: User
) -> None:
    LabelingSettings.objects.update_or_create(project=project)
    tasks_make(project, n=4, k=3, overlap=2, settings=EXACT, group="grades")
    tasks_make(project, n=4, k=3, overlap=2, kind="rank", name="rank", group="ranks")
    for person in annotators_make(project, 2):
        for _ in range(8):
            task_rate(project, person)
    assert set(Task.objects.values_list("state", flat=True)) == {"decided"}
    made = pairs_make(project=project, by=emil)
    assert (made.n_tasks, made.n_created, made.n_undecided) == (8, 24, 0)
    assert pairs_make(project=project, by=emil).n_created == 0
    assert not Vote.objects.exists()
    snapshot = freeze(project, emil, splits={"train": 1.0}, heldout_annotators=0.0)
    frozen = rows(snapshot, "train")
    assert len(frozen) == 24
    origins = [json.loads(row["metadata"]) for row in frozen]
    assert {origin["made"] for origin in origins} == {"from grades", "from ranking"}
    assert all(len(origin["answers"]) == 2 and origin["task"] for origin in origins)
    # of a grading more is better, of a ranking less
    of_grades = {row["chosen"][-1]["content"][:8] for row in frozen if "grades" in row["metadata"]}
    assert of_grades == {"Answer 2", "Answer 3"}
    of_ranks = {row["chosen"][-1]["content"][:8] for row in frozen if "ranking" in row["metadata"]}
    assert of_ranks == {"Answer 1", "Answer 2"}


def task_rate(project: Project, person: User) -> None:
    """Grade or rank the task that comes next: by stored place 1, 2, 3, …"""
    lease = slot_lease_next(project=project, annotator=person, kinds=("grade", "rank"))
    shown = Slot.objects.get(pk=lease.slot).shown
    vote_cast(
        slot=lease.slot,
        annotator=person,
        idempotency_key=lease.key,
        values=shown,
        lease_next=False,
    )
