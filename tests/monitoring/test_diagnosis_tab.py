"""The Diagnosis tab: the chain, the verdict, the evidence, the next checks, and what it costs."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.playbook import experiment_words
from apps.common.registry import run_tabs
from apps.monitoring.screens.next_checks import checks_view
from apps.monitoring.screens.start_chart import start_chart
from apps.monitoring.selectors import diagnosis as selector
from apps.monitoring.selectors.checks import ExperimentState
from apps.monitoring.selectors.diagnosis import analysed_series, findings_waiting, run_diagnosis
from apps.monitoring.services import imports
from apps.monitoring.services.imports import run_import
from apps.training.metric_blocks import series_columns
from apps.training.models import MetricBlock, Run
from apps.training.selectors import metric_series
from apps.training.services import metrics_store
from tests.monitoring.probed import Curves, from_step, healthy, ppo_run
from tests.web.world import event_add, metrics_add, run_make
from workers.rules.diagnosis import Finding
from workers.rules.experiments import EXPERIMENTS

SignIn = Callable[[User], Client]
HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    cache.clear()


def planted() -> Curves:
    """The reward follows length from step 20 on; the policy is clipped away from step 50 on."""
    curves = from_step(healthy(), "reward/length_correlation", 20, 0.9)
    return from_step(curves, "policy/clipfrac_avg", 50, 0.6)


def address(run: Run) -> str:
    return reverse("monitoring:diagnosis", args=[run.project.slug, run.pk])


def shown(client: Client, run: Run, **query: str) -> str:
    return client.get(address(run), query, **HTMX).content.decode()


# --- what it says ---


def test_emil_reads_what_broke_first_and_what_followed(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    page = signed_in(emil).get(address(ppo_run(project, planted())), **HTMX)
    view = page.context["view"]
    assert view.first.finding.rule == "reward_follows_length"
    assert "at step 2" in view.sentence
    assert "policy update followed" in view.sentence
    assert [one.finding.stage for one in view.consequences] == ["policy"]
    states = {one.stage: one.state for one in view.chain}
    assert states["reward"] == "first"
    assert states["policy"] == "consequence"
    assert states["critic"] == "ok"
    assert states["evaluation"] == "unknown"
    assert [one.number for one in view.chain] == list(range(1, 10))
    text = page.content.decode()
    assert "Next checks" in text
    assert "Correlation of reward and length" in text  # drawn
    assert "/playbook/answers-longer/?run=" in text


def test_a_healthy_run_is_said_to_be_one_with_what_was_looked_at(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    page = signed_in(emil).get(address(ppo_run(project, healthy())), **HTMX)
    view = page.context["view"]
    assert view.first is None
    assert "80 steps, 1 to 80" in view.basis
    text = page.content.decode()
    assert "detectors without data" in text
    assert "Accuracy on canary pairs" in text


def test_a_stage_that_no_rule_judges_says_so(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    found = run_make(project, kind="dpo", state="finished")
    metrics_add(found, 1, [1, 2, 3], **{"rewards/margins": [0.1, 0.2, 0.3]})
    page = signed_in(emil).get(address(found), **HTMX)
    why = {one.stage: one.why for one in page.context["view"].chain}
    assert (why["critic"], why["policy"]) == ("no rule for this kind of run", "")
    assert "no rule for this kind of run" in page.content.decode()


def test_a_run_without_figures_says_that_there_is_nothing_yet(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    run = run_make(project, kind="ppo", state="running")
    text = shown(signed_in(emil), run)
    assert "no metrics" in text


def test_a_contract_that_ended_the_run_is_the_verdict(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    run = ppo_run(
        project,
        healthy(),
        state="failed",
        failure_kind="contract_stale_rollout",
        failure_message="a rollout of policy version 3 meets version 5",
    )
    view = signed_in(emil).get(address(run), **HTMX).context["view"]
    assert view.sentence.startswith("The freshness")
    assert "at step 80" in view.sentence


def test_what_the_run_said_itself_counts(emil: User, project: Project, signed_in: SignIn) -> None:
    run = ppo_run(project, healthy())
    body = {"link": "exploration", "rule": "entropy_floor", "evidence_class": "trend", "step": 31}
    event_add(run, 99, "Evidence", body | {"onset": 28, "value": 0.05, "expected": "over 0.1"})
    view = signed_in(emil).get(address(run), **HTMX).context["view"]
    assert view.first.finding.rule == "entropy_floor"
    assert "at step 28" in view.sentence
    assert findings_waiting(run) == 1


def test_a_run_that_trains_nothing_has_no_such_tab(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    drill = run_make(project, kind="drill")
    assert "diagnosis" not in {tab.name for tab in run_tabs(drill)}
    assert "diagnosis" in {tab.name for tab in run_tabs(run_make(project, kind="ppo"))}
    assert "Nothing to diagnose" in shown(signed_in(emil), drill)


def test_without_javascript_it_is_a_page(emil: User, project: Project, signed_in: SignIn) -> None:
    text = signed_in(emil).get(address(ppo_run(project, planted()))).content.decode()
    assert "<!doctype html>" in text
    assert "broke first" in text


def test_a_run_of_another_project_leads_nowhere(
    emil: User, olga: User, project: Project, signed_in: SignIn
) -> None:
    foreign = run_make(Project.objects.get(slug="elsewhere"), kind="ppo")
    client = signed_in(emil)
    for name in ("diagnosis", "check_launch"):
        url = reverse(f"monitoring:{name}", args=[project.slug, foreign.pk])
        sent = client.post(url, {"experiment": "canaries"}) if "check" in name else client.get(url)
        assert sent.status_code == 404


# --- the chart ---


def test_the_chart_marks_the_onset_and_breaks_where_there_is_no_number() -> None:
    finding = Finding(
        stage="policy",
        rule="clip_fraction",
        evidence_class="trend",
        step=6,
        start_step=4,
        title="x",
    )
    points = [(1, 0.0), (2, 1.0), (3, "nan"), (4, 2.0), (5, None), (6, 4.0), (7, 3.0)]
    chart = start_chart(finding, "m", points)
    assert chart is not None
    (line,) = chart.curve.series
    assert len(line.paths) == 2  # steps 1–2 and 6–7; step 4 stands alone
    assert [mark.words for mark in chart.curve.marks] == ["start, step 4"]
    assert "at step 3" in chart.note
    assert start_chart(finding, "m", [(1, 0.5)]) is None


# --- what it costs ---


def test_an_ended_run_is_judged_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ppo_run(project, planted())
    first = run_diagnosis(run)
    monkeypatch.setattr(selector, "diagnose", pytest.fail)
    again = run_diagnosis(run)
    assert again == first
    assert findings_waiting(run) == len(first.findings)


def test_new_figures_of_an_ended_run_are_judged_at_once_those_of_a_live_one_in_a_moment(
    project: Project,
) -> None:
    run = ppo_run(project, healthy(40), state="running")
    assert run_diagnosis(run).last_step == 40
    metrics_store(run=run, attempt=1, series={"rollout/lag": [(41, 3.0)]})
    assert run_diagnosis(run).last_step == 40
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=timezone.now())
    run.refresh_from_db()
    ended = run_diagnosis(run)
    assert ended.last_step == 41
    assert "stale" in {one.rule for one in ended.findings}


def test_long_curves_are_thinned_to_steps_that_they_share() -> None:
    """And an evaluation or a number that is none is never thinned away."""
    steps = range(1, 20_001)
    columns = series_columns(
        {
            "policy/clipfrac_avg": [(s, 0.1) for s in steps],
            "val/explained_variance": [(s, 0.5) for s in steps],
            "eval/protocol": [(s, 17.0) for s in range(7, 20_001, 500)],
            "loss/policy_avg": [(s, float("nan") if s == 12_345 else 0.0) for s in steps],
        }
    )
    series = analysed_series(columns, "ppo")
    assert 2000 <= len(series["policy/clipfrac_avg"]) <= 2100
    assert [s for s, _ in series["policy/clipfrac_avg"]] == [
        s for s, _ in series["val/explained_variance"]
    ]
    evaluated = {s for s, _ in series["eval/protocol"]}
    assert len(evaluated) == 40
    assert evaluated <= {s for s, _ in series["policy/clipfrac_avg"]}
    assert series["loss/policy_avg"] == [(12_345, "nan")]


def test_a_short_run_is_looked_at_in_full() -> None:
    curves = healthy(50)
    series = analysed_series(series_columns(curves), "ppo")
    kept = {name: points for name, points in curves.items() if name in series}
    for name, points in kept.items():
        assert [s for s, _ in series[name]] == [s for s, _ in points]
        np.testing.assert_allclose([v for _, v in series[name]], [v for _, v in points])


# --- the next checks ---


def states(**changes: dict[str, object]) -> list[ExperimentState]:
    """Every experiment, to be launched unless `changes` say otherwise."""
    plain = {"why_not": "", "run": None, "outcome": "", "words": ""}
    return [
        ExperimentState(experiment=one, **plain | changes.get(one.id, {}))
        for one in EXPERIMENTS.values()
    ]


FIRST = Finding(
    stage="reward",
    rule="reward_follows_length",
    evidence_class="trend",
    step=30,
    start_step=20,
    title="The reward follows length",
    experiment="reward_plot",
)


def test_the_checks_come_in_the_order_of_the_walkthrough_with_the_findings_own_first() -> None:
    view = checks_view(FIRST, states(), {})
    assert [one.experiment.id for one in view.ordered] == [
        "reward_plot",
        "canaries",
        "rescore",
        "minimal",
    ]
    assert [one.is_next for one in view.ordered] == [True, False, False, False]
    assert len(view.ordered) + len(view.others) == len(EXPERIMENTS)


def test_what_cannot_be_run_says_why_and_the_next_one_is_offered(project: Project) -> None:
    view = checks_view(FIRST, states(reward_plot={"why_not": "The run kept no answers."}), {})
    assert view.ordered[0].why_not == "The run kept no answers."
    assert [one.experiment.id for one in view.ordered if one.is_next] == ["canaries"]


def test_a_check_that_was_made_shows_its_answer_and_its_picture(project: Project) -> None:
    made = run_make(project, kind="check", state="finished", name="Rewards of it")
    edges = [0.0, 1.0, 2.0]
    report = {
        "figures": {"mean": 0.5, "length_correlation": {"value": 0.8, "low": 0.7, "high": 0.9}},
        "details": {"histogram": {"edges": edges, "counts": {"all": [3, 1], "early": [2, 2]}}},
    }
    done = {"run": made, "outcome": "confirms", "words": "Ordered by length (n = 4)."}
    row = checks_view(FIRST, states(reward_plot=done), {made.pk: report}).ordered[0]
    assert row.outcome.startswith("Confirms")
    assert row.means == experiment_words("reward_plot").readings[0].text
    assert ("length correlation", "0.800 (0.700 … 0.900)") in row.figures
    drawn = row.pictures[0].histogram
    assert drawn is not None
    assert [group.name for group in drawn.groups] == ["All answers, n = 4", "Early third, n = 4"]


@pytest.mark.parametrize(
    "details",
    [
        {"histogram": {"edges": [0, 1], "counts": []}},
        {"histogram": 5},
        {"margins": ["x"]},
        [],
        None,
    ],
)
def test_a_damaged_report_is_no_picture_and_no_error(project: Project, details: object) -> None:
    made = run_make(project, kind="check", state="finished", name="Rewards of it")
    done = {"run": made, "outcome": "undecided", "words": "?"}
    row = checks_view(FIRST, states(reward_plot=done), {made.pk: {"details": details}}).ordered[0]
    assert row.pictures == []


def test_emil_launches_a_check_about_his_run(
    emil: User, project: Project, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a launch does is proved in test_checks; here: who asks for what, about which step."""
    asked: dict[str, object] = {}

    def launched(**given: object) -> Run:
        asked.update(given)
        return run_make(project, kind="check", name="Rewards of it")

    monkeypatch.setattr("apps.monitoring.views.diagnosis.launch", launched)
    run = ppo_run(project, planted())
    url = reverse("monitoring:check_launch", args=[project.slug, run.pk])
    sent = signed_in(emil).post(url, {"experiment": "reward_plot", "key": "k1"})
    assert sent["Location"].endswith(f"/runs/{run.pk}/?tab=diagnosis")
    assert asked["run"] == run
    assert (asked["experiment"], asked["user"], asked["key"]) == ("reward_plot", emil, "k1")
    assert 18 <= asked["step"] <= 26


def test_it_is_polled_only_while_something_is_under_way(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    run = ppo_run(project, planted())
    assert 'hx-trigger="every' not in shown(client, run)
    check = run_make(project, kind="check", about=run, launch_key="check:reward_plot:abc")
    text = shown(client, run)
    assert 'hx-trigger="every 3s"' in text
    seen = client.get(address(run), **HTMX).context["seen"]
    assert client.get(address(run), {"seen": seen}, **HTMX).status_code == 204
    Run.objects.filter(pk=check.pk).update(
        state="finished",
        ended_at=timezone.now(),
        summary={"outcome": "confirms", "words": "The rewards are ordered by length."},
    )
    text = shown(client, run, seen=seen)
    assert "The rewards are ordered by length." in text
    assert "Confirms" in text


# A run trained elsewhere, by its metrics file: stored whole or not at all, and diagnosed.


EVENTS = Path(__file__).parent.parent / "workers" / "diagnosis" / "files" / "scalars.tfevents"


def verl(steps: int = 60) -> bytes:
    """Verl's names; from step 30 on most ratios are clipped."""
    rows = [
        {
            "step": step,
            "actor/pg_clipfrac": 0.1 if step < 30 else 0.6,
            "critic/score/mean": 0.1 * step,
            "my/own": step,
        }
        for step in range(1, steps + 1)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def upload(client: Client, project: Project, name: str, data: bytes, **fields: str):
    file = SimpleUploadedFile(name, data)
    url = reverse("monitoring:run_import", args=[project.slug])
    return client.post(url, {"file": file, "trained_as": "ppo"} | fields)


def test_emil_imports_a_run_and_reads_its_diagnosis(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    sent = upload(client, project, "verl.jsonl", verl())
    run = Run.objects.get(kind="imported")
    assert sent["Location"].endswith(f"/runs/{run.pk}/?tab=diagnosis")
    assert (run.name, run.state, run.step, run.created_by) == ("verl", "finished", 60, emil)
    assert run.config == {"file": "verl.jsonl", "trained_as": "ppo"}
    series = metric_series(run=run)
    assert set(series) == {"policy/clipfrac_avg", "objective/scores", "my/own"}
    assert series["my/own"] == [(s, float(s)) for s in range(1, 61)]
    page = client.get(
        reverse("monitoring:diagnosis", args=[project.slug, run.pk]), HTTP_HX_REQUEST="true"
    )
    assert "policy update broke" in page.context["view"].sentence
    assert "at step 3" in page.context["view"].sentence
    assert page.context["checks"].ordered == []
    assert AuditEvent.objects.filter(action="run.imported", subject=run.pk).exists()


def test_the_pages_of_an_imported_run_open(emil: User, project: Project, signed_in: SignIn) -> None:
    run = run_import(
        project=project,
        user=emil,
        file_name="out.tfevents",
        data=EVENTS.read_bytes(),
        trained_as="ppo",
        name="From TensorBoard",
    )
    client = signed_in(emil)
    for tab in ("overview", "charts", "config", "alerts", "lineage"):
        page = client.get(reverse("training:run", args=[project.slug, run.pk]), {"tab": tab})
        assert page.status_code == 200, tab
    figures = client.get(reverse("training:run_metrics", args=[project.slug, run.pk])).json()
    assert "objective/kl" in figures["series"]
    assert client.get(reverse("training:runs", args=[project.slug])).status_code == 200
    assert run.summary["format"] == "TensorBoard"


def test_a_wrong_row_is_named_and_nothing_is_stored(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    data = verl(5) + b'\nnonsense\n{"step": 1.5, "a": 2}'
    page = upload(signed_in(emil), project, "verl.jsonl", data)
    assert page.status_code == 422
    text = page.content.decode()
    assert "Nothing was imported" in text
    assert "no JSON" in text
    assert [one["row"] for one in page.context["rows"]] == [6, 7]
    assert not Run.objects.exists()
    assert not MetricBlock.objects.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"step": 1, "a": ' + b"9" * 5000 + b"}",
        b'[{"step": 1, "a": ' + b"9" * 5000 + b"}]",
        b"step," + b"c," * 20_000 + b"\n1,2",
    ],
    ids=["deep list", "deep object", "digits in a line", "digits in a list", "columns"],
)
def test_a_hostile_file_is_refused_at_the_field(
    emil: User, project: Project, signed_in: SignIn, data: bytes
) -> None:
    page = upload(signed_in(emil), project, "x.json", data)
    assert page.status_code == 422
    assert page.context["form"].errors["file"]
    assert not Run.objects.exists()


def test_a_file_that_breaks_its_reader_is_refused(
    emil: User, project: Project, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_CURVES", "tests.common.misbehaving:crashes_over")
    page = upload(signed_in(emil), project, "x.json", verl())
    assert page.status_code == 422
    assert page.context["form"].errors["file"]


def test_one_wrong_thing_is_said_at_the_field(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    page = upload(signed_in(emil), project, "x.csv", b"a,b\n1,2\n")
    assert page.status_code == 422
    assert "No column" in page.context["form"].errors["file"][0]


def test_the_same_file_is_here_once_and_may_be_read_as_another_kind(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    upload(client, project, "verl.jsonl", verl())
    again = upload(client, project, "other-name.jsonl", verl())
    assert again.status_code == 422
    run = Run.objects.get()
    assert reverse("training:run", args=[project.slug, run.pk]) in again.content.decode()
    upload(client, project, "verl.jsonl", verl(), trained_as="grpo")
    assert Run.objects.count() == 2


def test_an_empty_form_and_an_unknown_kind_are_refused(
    emil: User, project: Project, signed_in: SignIn
) -> None:
    client = signed_in(emil)
    url = reverse("monitoring:run_import", args=[project.slug])
    assert client.post(url, {}).status_code == 422
    assert upload(client, project, "x.jsonl", verl(), trained_as="magic").status_code == 422
    assert not Run.objects.exists()


def test_names_and_texts_that_the_database_refuses_are_made_fit(
    emil: User, project: Project
) -> None:
    rows = json.dumps([{"step": 1, "a\u0000b": 1.0, "c": 2.0}]).encode()
    run = run_import(
        project=project, user=emil, file_name="h.json", data=rows, trained_as="ppo", name="x"
    )
    assert set(metric_series(run=run)) == {"a\ufffdb", "c"}


@pytest.mark.parametrize("name", ["ana", "rita"])
def test_only_staff_imports(
    name: str, project: Project, signed_in: SignIn, request: pytest.FixtureRequest
) -> None:
    person = request.getfixturevalue(name)
    assert upload(signed_in(person), project, "x.jsonl", verl()).status_code == 403
    assert not Run.objects.exists()
