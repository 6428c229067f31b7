"""The files of `docker/prometheus` by Prometheus' own tools, and every panel's query by a
Prometheus that scrapes a site with live runs. Skipped where Prometheus is not installed (on Debian
the package `prometheus`)."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.cache import cache
from django.utils import timezone
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Project, User
from apps.monitoring.models import Incident
from apps.monitoring.selectors import exposition, run_gauges, service
from apps.monitoring.views import metrics as view
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Run
from apps.training.services import run_launch, run_stop_and_keep
from tests.system.a_site import free_port
from tests.training.stack import Stack, wait_until
from tests.web.world import metrics_add, run_make
from tests.workers.recipes.language import WORDS, tiny_llama, word_tokenizer
from workers.models.loading import save_model

DOCKER = Path(settings.BASE_DIR) / "docker"
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/concord.json").read_text())
TOKEN = "a-token-of-the-tests"
START_SECONDS = 60.0
IDLE = service.BrokerState(dict.fromkeys(service.QUEUES, 0), {"events": True}, None)

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here")
needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="prometheus is not here"
)


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """The files as shipped, each where its path inside the container becomes one of this test."""
    (tmp_path / "metrics_token").write_text(TOKEN)
    for name in ("prometheus.yml", "rules.yml", "targets.yml"):
        text = (DOCKER / "prometheus" / name).read_text()
        text = text.replace("/etc/prometheus/", f"{tmp_path}/")
        (tmp_path / name).write_text(text.replace("/run/secrets/", f"{tmp_path}/"))
    return tmp_path


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60)


@needs_promtool
def test_promtool_finds_nothing_wrong_with_configuration_and_rules(configured: Path) -> None:
    checked = promtool("check", "config", str(configured / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "14 rules found" in checked.stdout
    broken = configured / "rules.yml"
    broken.write_text(broken.read_text().replace("concord_part_up == 0", "concord_part_up == ("))
    assert promtool("check", "rules", str(broken)).returncode != 0, "or the check would say nothing"


@needs_promtool
def test_promtool_finds_nothing_wrong_with_what_the_site_exports(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "broker_state", lambda: IDLE)
    _trained(project)
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=view.exposition(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    complaints = [line for line in checked.stderr.splitlines() if "concord_run_" in line]
    assert complaints == [], checked.stderr
    assert "error while linting" not in checked.stderr


def queries() -> list[tuple[str, str]]:
    """(title of the panel, its query with every run chosen, as Grafana sends it)."""
    return [
        (panel["title"], target["expr"].replace("$run", ".*"))
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]


@pytest.fixture
def prometheus(
    configured: Path,
    live_server: LiveServer,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """The address of one with the shipped files that scrapes the site once a second."""
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(exposition, "broker_state", lambda: IDLE)
    monkeypatch.setattr(view, "CACHED_SECONDS", 0)
    cache.delete(view.CACHE_KEY)
    site = urllib.parse.urlsplit(live_server.url).netloc
    (configured / "targets.yml").write_text(yaml.safe_dump([{"targets": [site]}]))
    path = configured / "prometheus.yml"
    path.write_text(re.sub(r"_interval: 15s", "_interval: 1s", path.read_text()))
    address = f"127.0.0.1:{free_port()}"
    log = (configured / "log").open("wb")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={configured / 'data'}",
            f"--web.listen-address={address}",
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait(lambda: _answers(f"http://{address}/-/ready"), "Prometheus is ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
        return answer.status == 200
    return False


def ask(url: str, **words: str) -> Any:
    """The data of an answer of Prometheus' API; raises with its words where it refuses."""
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(words)}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{words}: {error.read().decode()}") from error


def wait(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.2)
    return found


def _trained(project: Project) -> list[Run]:
    """A live run of each of three kinds, which together have every figure, and an incident."""
    ppo, dpo, reward = (run_make(project, kind=kind) for kind in ("ppo", "dpo", "reward"))
    rl = {
        name.replace("/", "__"): [1.0, 2.0]
        for figure in run_gauges.FIGURES
        for name in figure.metrics
        if "margin" not in name
    }
    metrics_add(ppo, 1, [39, 40], **rl)
    metrics_add(dpo, 1, [39, 40], rewards__margins=[0.1, "nan"])
    metrics_add(reward, 1, [39, 40], margin=[0.1, 0.2])
    now = timezone.now()
    Incident.objects.create(
        project=project,
        run=ppo,
        key="k",
        link="reward",
        rule="r",
        title="t",
        severity="critical",
        opened_at=now,
        heard_at=now,
    )
    return [ppo, dpo, reward]


@pytest.mark.long
@needs_prometheus
@pytest.mark.django_db(transaction=True)
def test_a_prometheus_answers_every_panel_and_forgets_a_run_that_ended(
    prometheus: str, project: Project
) -> None:
    runs = _trained(project)
    api = f"{prometheus}/api/v1"

    def asked(query: str) -> list[dict[str, Any]]:
        return ask(f"{api}/query", query=query)["result"]

    wait(lambda: len(asked("concord_run_info")) == len(runs), "the runs are scraped")
    answered = {query: asked(query) for _, query in queries()}
    empty = [query for query, result in answered.items() if "concord_run_" in query and not result]
    # Nobody waits, and no running run is silent by queue, on a site without queued runs.
    assert empty == ["concord_run_oldest_queued_seconds"]
    shown = ask(f"{api}/label/run/values", **{"match[]": "concord_run_info"})
    assert set(shown) == {run.pk for run in runs}, "what the variable offers"
    (margin,) = asked("concord_run_implicit_margin_nats")
    assert margin["value"][1] == "NaN"
    (row,) = [one for one in asked(_query_of("Runs shown")) if one["metric"]["run"] == runs[0].pk]
    assert (row["value"][1], row["metric"]["queue"]) == ("40", "cpu")

    rules = wait(lambda: _evaluated(api), "the rules were evaluated")
    assert {rule["name"]: rule["health"] for rule in rules} == {r["name"]: "ok" for r in rules}

    Run.objects.filter(pk=runs[0].pk).update(state="finished", ended_at=timezone.now())
    gone = f'{{__name__=~"concord_run_.+", run="{runs[0].pk}"}}'
    wait(lambda: not asked(gone), "no series of the ended run is current")
    assert asked(f'concord_run_step{{run="{runs[1].pk}"}}')


# Real trainings, each long enough to be stopped once every panel of its kind has answered.
GOOD = WORDS[3]
POLICY = {
    "reward": {"type": "token_count", "token": GOOD},
    "reward_check": "off",
    "steps": 5_000,
    "batch_size": 8,
    "minibatch_size": 4,
    "max_prompt_length": 16,
    "max_new_tokens": 8,
    "learning_rate": 1e-4,
    "eval_every": 5,
    "eval_prompts": 8,
    "guards": {"reference_kl": {"threshold": 1e-9, "action": "warn"}},  # an incident
}
PAIRS = {"batch_size": 8, "learning_rate": 1e-4, "epochs": 5_000}
SHOWS = {
    "reward": {"concord_run_score_margin"},
    "dpo": {"concord_run_implicit_margin_nats"},
    "ppo": {
        "concord_run_reward",
        "concord_run_kl_nats",
        "concord_run_held_out_score",
        "concord_run_entropy_nats_per_token",
        "concord_run_kl_nats_per_token",
        "concord_run_response_tokens",
        "concord_run_response_tokens_per_second",
        "concord_run_incidents_open",
    },
}
ALWAYS = {"concord_run_step", "concord_run_info", "concord_run_point_age_seconds"}


def run_queries(run: Run) -> dict[str, str]:
    """{query with this run chosen: the series it is about}, of every panel about single runs."""
    found = {}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            if "$run" in target["expr"]:
                query = target["expr"].replace("$run", run.pk)
                found[query] = re.findall(r"concord_run_\w+", query)[0]
    return found


@pytest.mark.long
@needs_prometheus
@pytest.mark.stack
@pytest.mark.django_db(transaction=True)
def test_a_prometheus_shows_real_trainings_while_they_live(
    prometheus: str, project: Project, emil: User, settings: Settings, tmp_path: Path
) -> None:
    save_model(tiny_llama(seed=7), word_tokenizer(), tmp_path / "model")
    subjects = [f"{one} {two} small" for one in WORDS[:8] for two in WORDS[8:14]]

    def asked(query: str) -> list[dict[str, Any]]:
        return ask(f"{prometheus}/api/v1/query", query=query)["result"]

    def ended(run: Run) -> bool:
        run.refresh_from_db()
        assert run.state != "failed", run.failure_message
        return not run.is_live

    def watched(kind: str, config: dict[str, Any], **inputs: Any) -> Run:
        """Trained until each of its panels has answered, stopped, and gone from /metrics."""
        run = run_launch(
            project=project, kind=kind, name=kind, config=config, inputs=inputs, user=emil
        )
        wanted = {query for query, name in run_queries(run).items() if name in SHOWS[kind] | ALWAYS}
        seen: set[str] = set()

        def answered() -> bool:
            assert not ended(run), "it ended before it was seen"
            seen.update(query for query in wanted - seen if asked(query))
            return seen == wanted

        wait_until(answered, seconds=240, what=f"the panels of {kind}: {wanted - seen}")
        run_stop_and_keep(run=run)
        wait_until(lambda: ended(run), seconds=120, what="its end")
        gone = f'{{__name__=~"concord_run_.+", run="{run.pk}"}}'
        wait_until(lambda: not asked(gone), what="no series of the ended run is current")
        return run

    with Stack(tmp_path).running() as stack:
        settings.ARTIFACTS_URL = str(stack.artifacts)
        rows = [
            {"prompt": f"{one} {WORDS[5]}", "response_a": GOOD, "response_b": WORDS[9], "gold": "a"}
            for one in subjects
        ]
        pairs = snapshot_import(project=project, kind="preferences", name="Pairs", rows=rows)
        prompts = snapshot_import(
            project=project, kind="prompts", name="Asked", rows=[{"prompt": s} for s in subjects]
        )
        start = run_launch(
            project=project,
            kind="register_policy",
            name="start",
            config={"model": str(tmp_path / "model")},
            inputs={},
            user=emil,
        )
        wait_until(lambda: ended(start), seconds=120, what="a registered model")
        judge = watched("reward", PAIRS, data=pairs, sft=start)
        watched("dpo", PAIRS, data=pairs, sft=start)
        watched("ppo", POLICY, prompts=prompts, sft=start, judge=judge)


def test_a_training_of_each_kind_shows_every_panel_of_single_runs() -> None:
    names = {name for kind in SHOWS.values() for name in kind} | ALWAYS
    assert set(run_queries(Run(pk="any")).values()) <= names


def _query_of(title: str) -> str:
    (query,) = [query for name, query in queries() if name == title]
    return query


def _evaluated(api: str) -> list[dict[str, Any]]:
    rules = [rule for group in ask(f"{api}/rules")["groups"] for rule in group["rules"]]
    return rules if all(rule["health"] != "unknown" for rule in rules) else []
