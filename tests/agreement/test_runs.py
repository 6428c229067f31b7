"""Agreement on runs of agents is counted by comparison, not by step."""

import random

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.agreement.selectors.runs import agreement_on_runs
from apps.labeling import services
from apps.labeling.models import LabelingSettings
from apps.labeling.services import vote_cast
from measures.agreement.coefficients import percent_agreement
from tests.labeling.pairs import annotators_make, leased

pytestmark = pytest.mark.django_db


def said(project: Project, n: int = 12, steps: int = 8) -> None:
    """Two people judge pairs of runs of so many steps; where they differ, they differ throughout a
    run, as people do who read it another way."""
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 2, "ask_steps": True}
    )

    def run(word: str) -> list[dict[str, object]]:
        turns: list[dict[str, object]] = []
        for k in range(steps):
            call = {"function": {"name": "look", "arguments": {"n": k, "word": word}}}
            turns += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": f"{word} {k}"},
            ]
        return [*turns, {"role": "assistant", "content": word}]

    rows = [
        {"prompt": f"Task {k}", "response_a": run(f"a{k}"), "response_b": run(f"b{k}")}
        for k in range(n)
    ]
    services.comparisons_import(project=project, rows=rows)
    draw = random.Random(3)
    differs: dict[int, bool] = {}
    for person in annotators_make(project, 2):
        for _ in range(n):
            lease = leased(project, person)
            other = differs.setdefault(lease.task, draw.random() < 0.4)
            turned = other and str(person).endswith("1")
            better = "b" if turned else "a"
            vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                choice=better,
                runs={
                    "steps": {f"{k}-{k}": better for k in range(2, steps + 2)},
                    "first_error": {"a": 3 if turned else 0},
                    "outcome": {"a": {"success": "no" if turned else "yes"}},
                },
            )


def test_intervals_of_steps_are_not_narrower_than_those_of_their_runs(project: Project) -> None:
    said(project)
    found = {one.question: one for one in agreement_on_runs(project=project)}
    steps, first = found["steps"], found["first_error"]
    assert (steps.n_items, steps.n_comparisons) == (12 * 8, 12)
    assert (first.n_items, first.n_comparisons) == (12, 12)
    # everybody who differs differs in all steps: steps tell no more than their runs
    assert steps.percent.value == pytest.approx(first.percent.value)
    assert steps.percent.low is not None
    assert first.percent.low is not None
    width = steps.percent.high - steps.percent.low  # type: ignore[operator]
    assert width == pytest.approx(first.percent.high - first.percent.low, abs=0.05)  # type: ignore[operator]
    # … counted by step they would look eight times as sure
    counts = [[2, 0, 0]] * 60 + [[1, 0, 1]] * 36
    by_step = percent_agreement(counts)
    assert by_step.high - by_step.low < 0.6 * width  # type: ignore[operator]


def test_the_page_shows_them_to_readers_alone(
    project: Project, emil: User, ana: User, client: Client
) -> None:
    client.force_login(emil)
    address = f"/p/{project.slug}/agreement/runs/"
    assert "Nothing was said about runs" in client.get(address).content.decode()
    said(project, n=6, steps=2)
    page = client.get(address).content.decode()
    assert "First wrong step" in page
    assert "Did it do what was asked?" in page
    client.force_login(ana)
    assert client.get(address).status_code == 403
