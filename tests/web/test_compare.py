"""Runs side by side."""

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Run, RunInput
from tests.web.runs import metrics_add, run_make

pytestmark = pytest.mark.django_db
HERE = "/p/arguments/runs/compare/"


def snapshot_make(project: Project, name: str, sha256: str) -> Snapshot:
    return Snapshot.objects.create(
        project=project,
        name=name,
        kind=Snapshot.Kind.PREFERENCES,
        state=Snapshot.State.FROZEN,
        uri="snapshots/none",
        sha256=sha256,
        frozen_at=timezone.now(),
    )


def row(context: dict, part: str, name: str) -> list[str]:
    return next([cell.text for cell in one.cells] for one in context[part] if one.name == name)


@pytest.fixture
def runs(project, emil) -> list[Run]:
    """Two PPO runs: one with a dearer KL, on data of the same name and other content."""
    made = []
    for i, config in enumerate([{}, {"kl_coef": 0.2}]):
        run = run_make(project, by=emil, kind="ppo", name=f"run {i}", config=config)
        data = snapshot_make(project, "prompts", str(i) * 64)
        RunInput.objects.create(run=run, role="prompts", snapshot=data)
        metrics_add(run, 1, [1, 2], objective__scores=[0.1, 1.5 + i])
        made.append(run)
    return made


def asked(runs: list[Run]) -> str:
    return HERE + "?" + "&".join(f"run={run.pk}" for run in runs)


def test_what_differs_is_shown_and_what_was_not_set_has_its_default(emil, signed_in, runs):
    page = signed_in(emil).get(asked(runs))
    settings = {one.name: one.cells for one in page.context["settings"]}
    assert set(settings) == {"kl_coef"}
    left, right = settings["kl_coef"]
    assert (left.is_default, left.note) == (True, "default")
    assert (right.is_default, right.text) == (False, "0.2")
    assert row(page.context, "figures", "Reward") == ["1.50", "2.50"]


def test_inputs_are_told_apart_by_content_and_not_by_name(emil, signed_in, runs):
    page = signed_in(emil).get(asked(runs))
    prompts = next(one for one in page.context["inputs"] if one.name == "prompts")
    assert prompts.differs
    assert [cell.text for cell in prompts.cells] == ["prompts", "prompts"]
    RunInput.objects.filter(run=runs[1]).update(snapshot=runs[0].inputs.get().snapshot)
    page = signed_in(emil).get(asked(runs))
    assert not next(one for one in page.context["inputs"] if one.name == "prompts").differs


def test_each_run_says_which_rules_fired(emil, signed_in, runs):
    for seq, step in ((1, 40), (2, 7)):
        Alert.objects.create(
            run=runs[1], attempt=1, seq=seq, step=step, rule="length", severity="warning",
            message="long", raised_at=timezone.now(),
        )  # fmt: skip
    page = signed_in(emil).get(asked(runs))
    (fired,) = page.context["alert_rows"]
    assert [(cell.text, cell.note) for cell in fired.cells] == [
        ("—", ""),
        ("2 times", "first at step 7"),
    ]
    assert "2</a>" in page.content.decode()


def test_six_runs_are_too_many_and_the_page_says_so(project, emil, signed_in):
    page = signed_in(emil).get(asked([run_make(project) for _ in range(6)]))
    assert page.status_code == 422
    assert "at most 5 can be compared" in page.content.decode()


def test_one_run_asks_for_another_and_none_says_how_to_choose(emil, signed_in, runs):
    one = signed_in(emil).get(asked(runs[:1])).content.decode()
    assert "Add another one above" in one
    assert runs[1].pk in one
    assert "No runs chosen" in signed_in(emil).get(HERE).content.decode()


def test_the_list_and_the_run_lead_to_the_comparison(emil, signed_in, runs):
    listed = signed_in(emil).get("/p/arguments/runs/").content.decode()
    assert f'action="{HERE}"' in listed
    assert f'value="{runs[0].pk}"' in listed
    page = signed_in(emil).get(f"/p/arguments/runs/{runs[0].pk}/").content.decode()
    assert f"{HERE}?run={runs[0].pk}" in page


def test_a_run_of_another_project_is_unknown_here(emil, signed_in, runs):
    theirs = run_make(Project.objects.create(slug="elsewhere", name="Elsewhere"))
    assert signed_in(emil).get(asked([runs[0], theirs])).status_code == 404
