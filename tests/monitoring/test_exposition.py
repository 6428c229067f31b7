"""`/metrics`: who may read it, what it says of a known site, and what it never says."""

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common import environment
from apps.monitoring.models import Channel, Delivery, Incident, Watch
from apps.monitoring.selectors import exposition, gauges, run_gauges, service
from apps.monitoring.selectors import service as broker
from apps.monitoring.views import metrics as view
from apps.monitoring.views.metrics import exposition as told
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run, RunAttempt
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.web.world import metrics_add, run_make
from workers.contract import wire
from workers.supervisor.connection import Line

TOKEN = "a-token-of-the-tests"
NOW = timezone.now()
IDLE = service.BrokerState(dict.fromkeys(service.QUEUES, 0), {"events": True, "gpu": False}, None)


@pytest.fixture(autouse=True)
def _fresh(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.METRICS_TOKEN, settings.METRICS_ALLOW = TOKEN, []
    monkeypatch.setattr(exposition, "broker_state", lambda: IDLE)
    cache.delete(view.CACHE_KEY)
    yield
    cache.delete(view.CACHE_KEY)


def read(client: Client | None = None) -> str:
    cache.delete(view.CACHE_KEY)
    answer = (client or Client()).get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    return answer.content.decode()


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """{values of the labels, in the order of their names: value}."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in families[name].samples
    }


# --- who may read it -----------------------------------------------------------------------------


def status(client: Client, authorization: str = "", **extra: Any) -> int:
    headers = {"authorization": authorization} if authorization else {}
    return client.get("/metrics", headers=headers, **extra).status_code


def test_it_does_not_exist_until_somebody_may_read_it(
    client: Client, settings: Settings, db: None
) -> None:
    settings.METRICS_TOKEN = ""
    assert status(client) == 404
    assert status(client, "Bearer ") == 404
    settings.DEBUG = True
    assert status(client) == 200


@pytest.mark.parametrize(
    "wrong", ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer é"]
)
def test_a_wrong_token_reads_nothing(client: Client, db: None, wrong: str) -> None:
    assert status(client, wrong) == 401
    assert status(client, f"bearer {TOKEN}") == 200


def test_the_right_token_may_be_sent_by_nobody_but_a_get(client: Client, db: None) -> None:
    answer = client.post("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 405


@pytest.mark.parametrize(
    ("address", "expected"),
    [("10.1.2.3", 200), ("127.0.0.1", 401), ("11.0.0.1", 401), ("fd00::5", 200), ("", 401)],
)
def test_a_network_that_is_allowed_needs_no_token(
    client: Client,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    db: None,
    address: str,
    expected: int,
) -> None:
    monkeypatch.setenv("METRICS_ALLOW", "10.0.0.0/8, fd00::/8")
    settings.METRICS_ALLOW = environment.networks("METRICS_ALLOW")
    for token in (TOKEN, ""):
        settings.METRICS_TOKEN = token
        assert status(client, REMOTE_ADDR=address) == expected


def test_an_address_that_the_client_invents_opens_nothing(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    monkeypatch.setenv("METRICS_ALLOW", "10.0.0.0/8")
    settings.METRICS_ALLOW = environment.networks("METRICS_ALLOW")
    invented = {"x-forwarded-for": "10.0.0.1"}
    assert client.get("/metrics", headers=invented, REMOTE_ADDR="8.8.8.8").status_code == 401
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.9")
    settings.TRUSTED_PROXIES = environment.networks("TRUSTED_PROXIES")
    seen = {"x-forwarded-for": "10.0.0.1, 8.8.8.8"}  # the last is what our proxy saw
    assert client.get("/metrics", headers=seen, REMOTE_ADDR="10.0.0.9").status_code == 401
    seen = {"x-forwarded-for": "8.8.8.8, 10.0.0.1"}
    assert client.get("/metrics", headers=seen, REMOTE_ADDR="10.0.0.9").status_code == 200


@pytest.mark.parametrize(
    ("name", "value", "reader"),
    [
        ("METRICS_TOKEN", "short", partial(environment.token, least=16)),
        ("METRICS_ALLOW", "10.0.0.0/8, nowhere", environment.networks),
        ("METRICS_ALLOW", "1", environment.networks),
    ],
)
def test_a_setting_that_does_not_parse_stops_the_start_and_no_secret_is_printed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reader: Callable[[str], Any]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(environment.BadEnvironment, match=name) as stopped:
        reader(name)
    assert "short" not in str(stopped.value)


# --- what it says --------------------------------------------------------------------------------


def incident(project: Project, key: str, severity: str, link: str, state: str = "open") -> None:
    resolved = {"resolved_at": NOW} if state == "resolved" else {}
    Incident.objects.create(
        project=project,
        key=key,
        link=link,
        rule="r",
        title="t",
        severity=severity,
        state=state,
        opened_at=NOW,
        heard_at=NOW,
        **resolved,
    )


@pytest.fixture
def site(project: Project, emil: User, ana: User, rita: User) -> Project:
    """Two running runs, one silent; two queued; incidents, deliveries, a watch; three votes."""
    now = timezone.now()
    hour = timedelta(hours=1)
    run_make(project, name="quiet", kind="ppo", queue="gpu", heard_at=now - 5 * hour)
    loud = run_make(project, name="loud", kind="ppo", queue="gpu", heard_at=now)
    for hours in (2, 3):
        queued = run_make(project, state="queued", kind="sft", queue="cpu", heard_at=None)
        RunAttempt.objects.filter(run=queued).update(created_at=now - hours * hour)
    run_make(project, state="finished", kind="sft", queue="cpu")
    incident(project, "a", "critical", "reward")
    incident(project, "b", "critical", "reward", "acknowledged")
    incident(project, "c", "warning", "critic")
    incident(project, "d", "critical", "reward", "resolved")
    channel = Channel.objects.create(project=project, kind="email", address="x@example.org")
    for state, hours in (("pending", 1), ("pending", 4), ("failed", 9), ("sent", 90)):
        row = Delivery.objects.create(channel=channel, event="test", state=state, next_at=now)
        Delivery.objects.filter(pk=row.pk).update(created_at=now - hours * hour)
    prompts = Snapshot.objects.create(
        project=project,
        name="p",
        kind="prompts",
        state="frozen",
        uri="x",
        sha256="0" * 64,
        frozen_at=now,
    )
    checkpoint = Checkpoint.objects.create(
        project=project, run=loud, attempt=1, step=1, uri="x", sha256="0" * 64
    )
    for name, state, enabled in (("w", "drifted", True), ("off", "broken", False)):
        Watch.objects.create(
            project=project,
            kind="policy",
            name=name,
            checkpoint=checkpoint,
            prompts=prompts,
            next_at=now - hour,
            state=state,
            enabled=enabled,
        )
    return project


def test_a_known_site_is_told_as_it_is(site: Project) -> None:
    text = read()
    assert values(text, "concord_runs") == {  # kind, queue, state
        ("ppo", "gpu", "running"): 2,
        ("sft", "cpu", "queued"): 2,
        ("sft", "cpu", "finished"): 1,
    }
    hour = pytest.approx(3600, abs=300)
    assert values(text, "concord_run_silence_seconds")[("gpu",)] / 5 == hour
    assert values(text, "concord_run_oldest_queued_seconds")[("cpu",)] / 3 == hour
    assert values(text, "concord_incidents_open") == {  # link, severity, state
        ("reward", "critical", "open"): 1,
        ("reward", "critical", "acknowledged"): 1,
        ("critic", "warning", "open"): 1,
    }
    assert values(text, "concord_deliveries") == {("pending",): 2, ("failed",): 1}
    assert values(text, "concord_delivery_oldest_pending_seconds")[()] / 4 == hour
    assert values(text, "concord_watches") == {("policy", "drifted"): 1}
    assert values(text, "concord_watch_overdue_seconds")[()] == hour
    assert values(text, "concord_part_up") == {("database",): 1, ("broker",): 1, ("fleet",): 1}
    waiting = values(text, "concord_runs_waiting")  # queue, reason
    assert {key: n for key, n in waiting.items() if n} == {("cpu", "slot"): 2}
    assert set(values(text, "concord_slots_taken").values()) == {0}, "rows of tests were not sent"
    assert values(text, "concord_worker_seen") == {("events",): 1, ("gpu",): 0}
    assert values(text, "concord_event_delay_seconds") == {(): 0}
    assert values(text, "concord_storage_bytes")[("metric_blocks",)] > 0


def test_votes_of_people_count_for_an_hour(project: Project) -> None:
    pairs_make(project, 2)
    for annotator in annotators_make(project, 2):
        vote(project, annotator)
    assert sum(values(read(), "concord_votes_last_hour").values()) == 2
    later = exposition.site_families(now=timezone.now() + timedelta(hours=1, seconds=5))
    (votes,) = [family for family in later if family.name == "concord_votes_last_hour"]
    assert votes.rows == []


def test_no_name_is_told_unless_it_may_be(site: Project, settings: Settings) -> None:
    Project.objects.filter(pk=site.pk).update(slug="secret-merger", name="Secret merger")
    text = read()
    names = ("secret", "quiet", "loud", "emil", "example.org")
    assert not [name for name in names if name in text.lower()]
    live = set(Run.objects.filter(state__in=Run.LIVE_STATES).values_list("pk", flat=True))
    seen = {pk for pk in Run.objects.values_list("pk", flat=True) if pk in text}
    assert seen == live, "ids, which are drawn at random, and of live runs alone"
    settings.METRICS_RUNS = 0
    assert not [pk for pk in live if pk in read()]
    settings.METRICS_PROJECT_LABELS = True
    text = read()
    assert values(text, "concord_project_runs")[("secret-merger", "running")] == 2
    assert values(text, "concord_project_incidents_open")[("secret-merger", "critical")] == 2
    assert "quiet" not in text


def test_projects_beyond_the_most_are_one(
    site: Project, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METRICS_PROJECT_LABELS = True
    monkeypatch.setattr(exposition, "MOST_PROJECTS", 1)
    for n in range(3):
        run_make(Project.objects.create(slug=f"p{n}", name="p"))
    told = values(read(), "concord_project_runs")
    assert {project for project, _ in told} == {site.slug, "other"}
    assert told[("other", "running")] == 3


def test_many_series_become_few_and_lose_no_count() -> None:
    rows = [((f"q{n}",), float(n)) for n in range(1000)]
    told = gauges.capped(rows, 10)
    assert len(told) == 10
    assert told[-1][0] == ("other",)
    assert sum(value for _, value in told) == sum(range(1000))


def test_it_is_read_in_few_queries_and_not_again_for_ten_seconds(site: Project) -> None:
    for n in range(20):
        metrics_add(run_make(site, name=f"r{n}"), 1, [1], loss=[0.5])
    with CaptureQueriesContext(connection) as queries:
        first = read()
    assert len(queries) <= 18
    run_make(site, name="one more")
    client = Client()
    with CaptureQueriesContext(connection) as queries:
        again = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert (again.content.decode(), len(queries)) == (first, 0)


def test_a_part_that_is_away_is_said_to_be_and_hides_no_other(
    site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(exposition, "broker_state", away)
    text = read()
    assert values(text, "concord_part_up") == {("database",): 1, ("broker",): 0, ("fleet",): 1}
    assert "concord_queue_length" not in text
    assert values(text, "concord_deliveries")[("pending",)] == 2

    def fails(now: Any) -> None:
        raise DatabaseError

    monkeypatch.setattr(exposition, "_runs", fails)
    assert values(read(), "concord_part_up")[("database",)] == 0


# --- the broker ----------------------------------------------------------------------------------


@pytest.fixture
def queue() -> Iterator[Callable[..., None]]:
    """Sends a batch of events of these times, as a supervisor does; nothing is left behind."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.delete(wire.QUEUE_EVENTS)
    line = Line(os.environ["REDIS_URL"])

    def send(*at: float) -> None:
        assert line.send({"run": "r", "attempt": 1, "events": [{"at": one} for one in at]})

    yield send
    client.delete(wire.QUEUE_EVENTS)
    line.close()
    client.close()


def test_the_delay_is_that_of_the_oldest_batch_that_waits(queue: Callable[..., None]) -> None:
    before = service.broker_state()
    assert (before.lengths["events"], before.oldest_event_at) == (0, None)
    queue(100.0, 200.0)
    queue(300.0)
    look = service.broker_state()
    assert (look.lengths["events"], look.oldest_event_at) == (2, 200.0)
    assert set(look.lengths) == set(service.QUEUES)


def test_a_batch_without_events_has_no_delay(queue: Callable[..., None]) -> None:
    queue()
    look = service.broker_state()
    assert (look.lengths["events"], look.oldest_event_at) == (1, None)


# The dashboard, the rules and the compose file: they parse, fit together, and ask for metrics
# that `/metrics` has.


DOCKER = Path(settings.BASE_DIR) / "docker"
OPERATIONS = (Path(settings.BASE_DIR) / "docs" / "operations.md").read_text()
FILES = sorted(path.relative_to(DOCKER).as_posix() for path in DOCKER.rglob("*.y*ml"))


def parsed(name: str) -> Any:
    text = (DOCKER / name).read_text()
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def panels() -> list[dict[str, Any]]:
    found = parsed("grafana/dashboards/concord.json")["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in parsed("prometheus/rules.yml")["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [rule["expr"] for rule in rules()]


@pytest.fixture
def families(db: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an empty site tells, with one look at a broker that serves everything."""
    look = broker.BrokerState(dict.fromkeys(broker.QUEUES, 0), {"events": True}, None)
    monkeypatch.setattr(exposition, "broker_state", lambda: look)
    return {one.name: one for one in text_string_to_metric_families(told())}


@pytest.mark.parametrize("name", FILES)
def test_every_yaml_file_parses(name: str) -> None:
    assert parsed(name)


def test_every_metric_that_is_asked_for_exists(families: dict[str, Any]) -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bconcord_\w+", text)}
    assert len(asked) > 10
    assert asked - set(families) == set()
    assert "concord_nothing" not in families, "or the comparison would mean nothing"


def test_every_metric_is_told_is_documented_and_shown(families: dict[str, Any]) -> None:
    documented = set(re.findall(r"^\| `(concord_\w+)`", OPERATIONS, re.MULTILINE))
    projects = {"concord_project_runs", "concord_project_incidents_open"}
    assert set(families) | projects | {"concord_project_votes_last_hour"} == documented
    shown = " ".join(expressions())
    assert [name for name in families if name not in shown] == []


def test_labels_that_are_asked_for_are_told(db: None) -> None:
    """By another route than a scrape: an empty site has no series to look at."""
    known: dict[str, set[str]] = {}
    source = Path(exposition.__file__).read_text()
    for name, labels in re.findall(r'"(concord_\w+)",\s+"[^"]*",\s+\(([^)]*)\)', source):
        known[name] = set(re.findall(r'"(\w+)"', labels))
    for family in run_gauges.run_families(NOW):
        known[family.name] = set(family.labels)
    for text in expressions():
        for name, selected in re.findall(r"(concord_\w+)\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)=", selected)) <= known[name], text


def test_panels_of_single_runs_show_the_runs_that_were_chosen(families: dict[str, Any]) -> None:
    (variable,) = parsed("grafana/dashboards/concord.json")["templating"]["list"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
    assert (metric in families, label, variable["name"]) == (True, "run", "run")
    assert variable["query"]["query"] == variable["definition"]
    each = {one.name for one in run_gauges.run_families(NOW) if "run" in one.labels}
    for text in (target["expr"] for panel in panels() for target in panel["targets"]):
        if each & set(re.findall(r"concord_\w+", text)):
            assert '{run=~"$run"}' in text


def test_every_panel_says_what_it_means_and_is_in_the_documentation() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert f"**{panel['title']}**" in OPERATIONS
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_rule_says_what_is_wrong() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["alert"] in OPERATIONS


def test_prometheus_is_given_the_token_and_grafana_asks_prometheus() -> None:
    compose = parsed("compose.yml")
    scrape = parsed("prometheus/prometheus.yml")["scrape_configs"][0]
    secret = scrape["authorization"]["credentials_file"].rpartition("/")[2]
    assert secret in compose["services"]["prometheus"]["secrets"]
    source = parsed("grafana/provisioning/datasources/prometheus.yml")["datasources"][0]
    uids = {t["datasource"]["uid"] for panel in panels() for t in panel["targets"]}
    assert uids == {source["uid"]}
