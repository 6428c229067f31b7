"""Runs side by side."""

import csv
import io

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Run, RunInput
from tests.web.world import metrics_add, run_make

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
    """Two PPO runs: one with a higher KL penalty, on data of the same name and other content."""
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
    assert row(page.context, "metrics", "Reward") == ["1.50", "2.50"]


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
            run=runs[1],
            attempt=1,
            seq=seq,
            step=step,
            rule="length",
            severity="warning",
            message="long",
            raised_at=timezone.now(),
        )
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
    assert "at most 5" in page.context["problem"]


def test_one_run_asks_for_another_and_none_says_how_to_choose(emil, signed_in, runs):
    one = signed_in(emil).get(asked(runs[:1]))
    assert [run.pk for run in one.context["runs"]] == [runs[0].pk]
    assert runs[1].pk in one.content.decode()
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


# The page of a group of seeds: what a mean may say, and that no seed is left out in silence.


PAGE = "/p/arguments/runs/groups/g7/"


@pytest.fixture
def seed_make(project, emil):
    def make(seed: int, values: list, state: str = "finished", **fields) -> Run:
        run = run_make(
            project,
            by=emil,
            name=f"warm-up, seed {seed}",
            seed=seed,
            group="g7",
            state=state,
            step=len(values),
            **fields,
        )
        metrics_add(run, 1, list(range(1, len(values) + 1)), drill__value=values)
        return run

    return make


def test_three_seeds_have_a_mean_with_its_interval_and_a_band(emil, signed_in, seed_make):
    for seed, last in ((1, 2.0), (2, 4.0), (3, 6.0)):
        seed_make(seed, [0.0, last / 2, last])
    page = signed_in(emil).get(PAGE)
    text = page.content.decode()
    for words in ("4.00", "−0.97 … 8.97", "n = 3 of 3 seeds", "warm-up, seed 2"):
        assert words in text, words
    assert "is not a result" not in text
    (metric,) = page.context["metrics"]
    drawn = metric.band.curve.series
    assert [len(one.bands) for one in drawn] == [0, 0, 0, 1]
    assert [one.behind for one in drawn] == [True, True, True, False]
    assert [row[0] for row in metric.band.curve.rows] == ["mean of all 3 seeds"] * 3


@pytest.mark.parametrize(
    ("seeds", "words"), [(0, "No seed has"), (1, "One seed has"), (2, "Two seeds have")]
)
def test_fewer_than_three_are_said_to_be_no_result(emil, signed_in, seed_make, seeds, words):
    for seed in range(seeds):
        seed_make(seed, [1.0, 2.0 + seed])
    seed_make(9, [1.0], state="running")
    text = signed_in(emil).get(PAGE).content.decode()
    assert f"{words} finished" in text
    assert "not a result" in text
    assert "seed 9 (running)" in text


def test_a_seed_that_failed_is_named_with_its_reason_and_not_in_the_mean(
    emil, signed_in, seed_make
):
    for seed in (1, 2, 3):
        seed_make(seed, [0.0, float(seed)])
    seed_make(4, [0.0, 100.0], state="failed", failure_kind="guard_reference_kl")
    page = signed_in(emil).get(PAGE)
    text = page.content.decode()
    assert "seed 4 (failed at step 2, guard_" in text
    assert "n = 3 of 4 seeds" in text
    assert "2.00" in text
    assert "100 at step 2" in text  # its own last figure stands beside the others'


def test_the_mean_is_cut_where_a_seed_drops_out(emil, signed_in, seed_make):
    seed_make(1, [1.0, 1.0, 1.0, 1.0])
    seed_make(2, [3.0, 3.0], state="failed")
    (metric,) = signed_in(emil).get(PAGE).context["metrics"]
    told = [one.label for one in metric.band.curve.legend]
    assert told == ["mean of all 2 seeds", "mean of 1 seed"]


def test_a_curve_whose_points_are_alike_or_broken_is_still_a_page(emil, signed_in, seed_make):
    seed_make(1, [1.0, 1.0, "nan"])
    seed_make(2, [1.0, 1.0, "inf"])
    seed_make(3, [1.0, None, 1e308])
    (metric,) = signed_in(emil).get(PAGE).context["metrics"]
    assert [run.seed for run in metric.broken] == [1, 2, 3]


def test_the_csv_holds_every_step_with_every_seed(emil, signed_in, seed_make):
    seed_make(1, [1.0, 2.0])
    seed_make(2, [3.0])
    answer = signed_in(emil).get(PAGE + "seeds.csv")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [row["step"] for row in rows] == ["1", "2"]
    assert rows[0] | {"low": "", "high": ""} == {
        "metric": "drill/value",
        "step": "1",
        "mean": "2.0",
        "low": "",
        "high": "",
        "seeds": "2",
        "seed 1": "1.0",
        "seed 2": "3.0",
    }
    assert rows[1]["seed 2"] == ""


def test_a_page_with_nothing_new_costs_nothing(emil, signed_in, seed_make):
    run = seed_make(1, [1.0], state="running")
    client = signed_in(emil)
    seen = client.get(PAGE).context["seen"]
    htmx = {"hx-request": "true"}
    assert client.get(f"{PAGE}?seen={seen}", headers=htmx).status_code == 204
    metrics_add(run, 2, [2], drill__value=[5.0])
    text = client.get(f"{PAGE}?seen={seen}", headers=htmx).content.decode()
    assert "<html" not in text
    assert "5.00 at step 2" in text


def test_more_seeds_join_the_group(emil, signed_in, seed_make):
    seed_make(4, [1.0])
    answer = signed_in(emil).post(PAGE + "add/", {"seeds": "2", "key": "k"})
    assert answer.url == PAGE
    assert list(Run.objects.order_by("seed").values_list("seed", "group")) == [
        (4, "g7"),
        (5, "g7"),
        (6, "g7"),
    ]
    assert signed_in(emil).post(PAGE + "add/", {"seeds": "many"}).status_code == 400


def test_the_group_is_linked_from_its_runs_and_the_list(emil, signed_in, seed_make):
    run = seed_make(1, [1.0])
    seed_make(2, [1.0])
    client = signed_in(emil)
    assert PAGE in client.get("/p/arguments/runs/").content.decode()
    assert PAGE in client.get(f"/p/arguments/runs/{run.pk}/").content.decode()
    assert "warm-up, seed 2" in client.get("/p/arguments/runs/?q=g7").content.decode()


def test_a_group_of_another_project_leads_nowhere(olga, emil, signed_in, seed_make):
    seed_make(1, [1.0])
    client = signed_in(olga)
    for path in ("", "seeds.csv"):
        assert client.get(PAGE + path).status_code == 404
        assert client.get(f"/p/elsewhere/runs/groups/g7/{path}").status_code == 404
    assert client.post("/p/elsewhere/runs/groups/g7/add/", {"seeds": "1"}).status_code == 404
    assert Run.objects.count() == 1
    assert signed_in(emil).get("/p/arguments/runs/groups/nobodys/").status_code == 404
