"""What `/metrics` says of single live runs: their newest figures, no name, nothing afterwards."""

import math
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from apps.accounts.models import Project
from apps.monitoring.models import Incident
from apps.monitoring.selectors import exposition, run_gauges, service
from apps.monitoring.views import metrics as view
from apps.training.models import Run, RunAttempt
from apps.training.selectors import metrics_newest
from tests.training.reports import measured, report
from tests.web.world import metrics_add, run_make
from workers.contract import Metrics
from workers.contract.metrics import HEADLINES, metric_of

TOKEN = "a-token-of-the-tests"
IDLE = service.BrokerState(dict.fromkeys(service.QUEUES, 0), {"events": True}, None)
QUERIES = 4  # runs, how many there are, their incidents, their newest points


@pytest.fixture(autouse=True)
def _fresh(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.METRICS_TOKEN, settings.METRICS_ALLOW = TOKEN, []
    monkeypatch.setattr(exposition, "broker_state", lambda: IDLE)
    yield
    cache.delete(view.CACHE_KEY)


def read() -> str:
    cache.delete(view.CACHE_KEY)
    answer = Client().get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    return answer.content.decode()


def told(name: str, text: str | None = None) -> dict[tuple[str, ...], float]:
    """{values of the labels but `kind`, in the order of their names: value}."""
    families = {one.name: one for one in text_string_to_metric_families(text or read())}
    return {
        tuple(value for label, value in sorted(sample.labels.items()) if label != "kind"): (
            sample.value
        )
        for sample in families[name].samples
    }


def trained(project: Project, **fields: object) -> Run:
    run = run_make(project, **{"kind": "ppo", "step": 12} | fields)
    metrics_add(
        run,
        1,
        [11, 12],
        objective__scores=[0.5, 0.75],
        objective__kl=[3, 4],
        response__length=[80, 90],
        policy__entropy_avg=[2, 1.5],
        throughput__response_tokens_per_s=[900, 1000],
        eval__held_out_score=[0.25, None],
    )
    return run


def test_a_live_run_shows_the_newest_of_what_it_measures(project: Project) -> None:
    run = trained(project)
    text = read()
    assert told("concord_run_step", text) == {(run.pk,): 12}
    assert told("concord_run_reward", text) == {("objective/scores", run.pk): 0.75}
    assert told("concord_run_kl_nats", text) == {("objective/kl", run.pk): 4}
    assert told("concord_run_response_tokens", text) == {("response/length", run.pk): 90}
    entropy = told("concord_run_entropy_nats_per_token", text)
    assert entropy == {("policy/entropy_avg", run.pk): 1.5}
    throughput = told("concord_run_response_tokens_per_second", text)
    assert throughput == {("throughput/response_tokens_per_s", run.pk): 1000}
    held_out = told("concord_run_held_out_score", text)
    assert held_out == {("eval/held_out_score", run.pk): 0.25}, "undefined is no measurement"
    assert told("concord_run_score_margin", text) == {}, "PPO has none"
    assert 'kind="ppo"' in text


@pytest.mark.parametrize("state", Run.ENDED_STATES)
def test_a_run_that_has_ended_is_gone(project: Project, state: str) -> None:
    run = trained(project)
    assert run.pk in read()
    why = {"failure_kind": "bad_data"} if state == "failed" else {}
    Run.objects.filter(pk=run.pk).update(state=state, ended_at=timezone.now(), **why)
    assert run.pk not in read()


def test_a_run_that_has_not_begun_is_not_shown_and_not_counted(project: Project) -> None:
    run_make(project, state="queued", started_at=None, heard_at=None)
    text = read()
    assert told("concord_run_info", text) == {}
    assert told("concord_runs_left_out", text) == {(): 0}


def test_a_run_that_lost_its_machine_stays_until_it_ends(project: Project) -> None:
    run = trained(project, state="queued", heard_at=None)
    assert told("concord_run_step") == {(run.pk,): 12}


def test_what_else_a_trainer_measures_does_not_leak(project: Project) -> None:
    run = run_make(project, kind="grpo")
    metrics_add(run, 1, [1], customer_acme__score=[1.0], loss=[2.0], objective__scores=[3.0])
    text = read()
    assert "acme" not in text
    labels = {
        sample.labels["metric"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "metric" in sample.labels
    }
    assert labels == {"objective/scores"}


@pytest.mark.parametrize(
    ("last", "written"), [("nan", "NaN"), ("inf", "+Inf"), ("-inf", "-Inf"), (None, "2.0")]
)
def test_what_is_no_number_is_written_as_prometheus_knows_it(
    project: Project, last: str | None, written: str
) -> None:
    run = run_make(project, kind="ppo")
    metrics_add(run, 1, [1, 2, 3], objective__kl=[1.0, 2.0, last])
    line = f'concord_run_kl_nats{{kind="ppo",metric="objective/kl",run="{run.pk}"}} {written}'
    assert line in read().splitlines()


def test_a_number_after_nan_is_a_number_again(project: Project) -> None:
    run = run_make(project, kind="ppo")
    for seq, value in ((1, "nan"), (2, 7.0)):
        metrics_add(run, seq, [seq], objective__kl=[value])
    assert told("concord_run_kl_nats") == {("objective/kl", run.pk): 7}


def test_nan_is_still_the_newest_after_small_blocks_were_merged(project: Project) -> None:
    run = run_make(project, kind="ppo")
    for n in range(1, 41):
        value = "nan" if n == 40 else float(n)
        report(run, Metrics(steps=[n], values={"objective/kl": [value]}), first=n)
    assert run.metric_blocks.count() < 20
    assert math.isnan(told("concord_run_kl_nats")[("objective/kl", run.pk)])
    newest = metrics_newest(runs=[run.pk], names=["objective/kl"])[run.pk]
    assert newest.figures["objective/kl"][0] == 40
    assert newest.at == pytest.approx(timezone.now().timestamp(), abs=60)


def test_the_newest_attempt_speaks_though_an_older_one_came_further(project: Project) -> None:
    run = trained(project, attempt=2)
    RunAttempt.objects.create(run=run, number=2, opened_at=timezone.now(), resumed_from_step=5)
    report(run, Metrics(steps=[6], values={"objective/scores": [0.1]}), attempt=2)
    assert told("concord_run_reward") == {("objective/scores", run.pk): 0.1}


def test_the_age_is_that_of_a_point_of_training_not_of_the_machine(project: Project) -> None:
    run = run_make(project, kind="ppo")
    assert told("concord_run_point_age_seconds") == {}, "nothing measured yet"
    report(run, measured(1, 3))
    later = timezone.now() + timedelta(hours=1)
    report(run, Metrics(steps=[1_795_000_000], values={"machine/cpu": [1.0]}), first=2)
    families = {one.name: one for one in run_gauges.run_families(later)}
    ((_, age),) = families["concord_run_point_age_seconds"].rows
    assert age == pytest.approx(3600, abs=60)
    quiet = run_make(project, kind="ppo")
    report(quiet, Metrics(steps=[1_795_000_000], values={"machine/cpu": [1.0]}))
    assert set(told("concord_run_point_age_seconds")) == {(run.pk,)}


def test_open_incidents_are_counted_by_severity_also_where_there_are_none(project: Project) -> None:
    run = trained(project)
    now = timezone.now()
    for key, severity, state in (
        ("a", "critical", "open"),
        ("b", "critical", "acknowledged"),
        ("c", "warning", "resolved"),
    ):
        Incident.objects.create(
            project=project,
            run=run,
            key=key,
            link="reward",
            rule="r",
            title="t",
            severity=severity,
            state=state,
            opened_at=now,
            heard_at=now,
            resolved_at=now if state == "resolved" else None,
        )
    assert told("concord_run_incidents_open") == {
        (run.pk, "critical"): 2,
        (run.pk, "warning"): 0,
        (run.pk, "info"): 0,
    }


def test_there_are_at_most_so_many_runs_those_heard_from_last(
    project: Project, settings: Settings
) -> None:
    settings.METRICS_RUNS = 3
    now = timezone.now()
    runs = [trained(project, heard_at=now - timedelta(seconds=n)) for n in (5, 1, 4, 2, 3)]
    text = read()
    assert set(told("concord_run_step", text)) == {(runs[n].pk,) for n in (1, 3, 4)}
    assert told("concord_runs_left_out", text) == {(): 2}
    settings.METRICS_RUNS = 0
    text = read()
    assert not [run.pk for run in runs if run.pk in text]
    assert "concord_run_step" not in text


def test_the_queries_do_not_grow_with_the_runs(project: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            list(run_gauges.run_families(timezone.now()))
        return len(seen)

    trained(project)
    assert queries() == QUERIES
    for _ in range(12):
        run = trained(project)
        metrics_add(run, 2, [13], objective__kl=[5])
    assert queries() == QUERIES


def test_a_project_is_named_only_where_it_may_be_and_escaped(
    project: Project, settings: Settings
) -> None:
    run = trained(project, name="Secret merger", queue="gpu")
    odd = 'a"b\\c\nd'
    Project.objects.filter(pk=project.pk).update(slug=odd, name="Secret merger")
    text = read()
    assert told("concord_run_info", text) == {("", "gpu", run.pk): 1}
    assert "a\\" not in text
    settings.METRICS_PROJECT_LABELS = True
    text = read()
    assert told("concord_run_info", text) == {(odd, "gpu", run.pk): 1}
    assert 'project="a\\"b\\\\c\\nd"' in text
    assert "Secret" not in text


def test_without_the_token_no_run_is_told(project: Project) -> None:
    run = trained(project)
    read()  # so that there is an answer in the cache
    for headers in ({}, {"authorization": "Bearer wrong"}):
        answer = Client().get("/metrics", headers=headers)
        assert answer.status_code == 401
        assert run.pk not in answer.content.decode()


def test_the_metrics_of_a_figure_are_registered_and_have_its_unit() -> None:
    units = {
        "concord_run_kl_nats": "nats per sequence",
        "concord_run_kl_nats_per_token": "nats per token",
        "concord_run_entropy_nats_per_token": "nats per token",
        "concord_run_response_tokens": "tokens",
        "concord_run_implicit_margin_nats": "nats × β",
        "concord_run_score_margin": "raw score",
        "concord_run_response_tokens_per_second": "tokens/s",
        "concord_run_reward": "raw score",
        "concord_run_held_out_score": "raw score of the judge",
    }
    registered = {
        figure.name: {one.unit for name in figure.metrics if (one := metric_of(name))}
        for figure in run_gauges.FIGURES
    }
    assert registered == {name: {unit} for name, unit in units.items()}
    assert len(set(run_gauges.METRICS)) == len(run_gauges.METRICS)
    shown = set(run_gauges.METRICS)
    for kind in ("dpo", "kto", "ppo", "grpo"):
        heads = {name for one in HEADLINES[kind] for name in one.names}
        assert heads & shown, kind
