"""/healthz, and the signs of life it reads."""

import time

import pytest
import redis
from django.conf import settings as django_settings

from apps.common import health
from workers import alive
from workers.contract import scores, wire

EVERYTHING = [
    *(wire.QUEUE_EVENTS, wire.QUEUE_HOUSE, wire.QUEUE_IMPORTS, wire.QUEUE_FIGURES),
    *(wire.QUEUE_CPU, alive.SCHEDULER),
]


@pytest.fixture
def beating():
    """Signs of life as the processes of `manage.py up` give them."""
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    # Workers of other tests that this process ran are remembered for half a minute.
    every = {alive.alive_key(name) for part in health.PARTS.values() for name in part}
    client.delete(*every, *[alive.alive_key(name) for name in EVERYTHING])
    pulse = alive.Pulse(django_settings.REDIS_URL)
    pulse.names = list(EVERYTHING)
    pulse.beat()
    yield client
    client.delete(*[alive.alive_key(name) for name in EVERYTHING])
    client.close()


@pytest.mark.django_db
def test_healthz_says_ok_to_anyone_when_every_part_is_up(client, beating):
    answer = client.get("/healthz")
    assert answer.status_code == 200, answer.json()
    assert answer.json()["status"] == "ok"
    assert set(answer.json()["checks"]) >= {"database", "migrations", "redis", "event worker"}


@pytest.mark.django_db
def test_healthz_asks_redis_through_one_connection(client, beating):
    before = beating.info("stats")["total_connections_received"]
    client.get("/healthz")
    assert beating.info("stats")["total_connections_received"] - before == 1


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_answer_without_workers_host_https_or_sign_in(client, settings, path):
    settings.SECURE_SSL_REDIRECT = True
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    for ask in (client.get, client.head):
        assert ask(path, headers={"host": "10.0.0.7"}).status_code == 200


@pytest.mark.django_db
def test_a_missing_migration_or_database_makes_a_process_unready_but_alive(client, monkeypatch):
    monkeypatch.setattr(health, "migrations", lambda: "1 not applied; run manage.py migrate")
    assert client.get("/readyz").status_code == 503
    monkeypatch.setattr(health, "migrations", lambda: None)
    monkeypatch.setattr(health, "database", lambda: "the database does not answer")
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("gone", "part"),
    [
        (wire.QUEUE_EVENTS, "event worker"),
        (wire.QUEUE_IMPORTS, "imports worker"),
        (wire.QUEUE_FIGURES, "figures worker"),
        (wire.QUEUE_CPU, "training worker"),
        (alive.SCHEDULER, "scheduler"),
    ],
)
def test_healthz_names_the_part_that_gave_no_sign_of_life(client, beating, gone, part):
    beating.delete(alive.alive_key(gone))
    answer = client.get("/healthz")
    assert answer.status_code == 503
    unwell = {name for name, state in answer.json()["checks"].items() if state != "ok"}
    assert unwell == {part}


@pytest.mark.django_db
def test_a_missing_scorer_is_remarked_on_and_missed_only_while_somebody_waits(client, beating):
    beating.delete(alive.alive_key(scores.SCORER), scores.STREAM)
    resting = client.get("/healthz")
    assert resting.status_code == 200
    assert "503" in resting.json()["remarks"]["scorer"]
    beating.xadd(scores.STREAM, {"id": "r", "request": "{}"})
    try:
        missed = client.get("/healthz")
        assert missed.status_code == 503
        assert "requests for scores wait: 1" in missed.json()["checks"]["scorer"]
        beating.set(alive.alive_key(scores.SCORER), "here:1", ex=5)
        well = client.get("/healthz")
        assert (well.status_code, well.json()["remarks"]) == (200, {})
    finally:
        beating.delete(alive.alive_key(scores.SCORER), scores.STREAM)


@pytest.mark.django_db
def test_a_gpu_worker_is_a_training_worker_too(client, beating):
    beating.delete(alive.alive_key(wire.QUEUE_CPU))
    beating.set(alive.alive_key(wire.QUEUE_GPU), "gpu-box:1", ex=5)
    assert client.get("/healthz").status_code == 200
    beating.delete(alive.alive_key(wire.QUEUE_GPU))


@pytest.mark.django_db
def test_healthz_is_503_and_names_redis_when_the_broker_is_down(client, settings):
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["redis"] == "Redis does not answer"
    assert answer.json()["checks"]["database"] == "ok"
    assert "nonexistent" not in answer.content.decode()


@pytest.mark.django_db
def test_healthz_counts_migrations_that_are_missing(client, beating, monkeypatch):
    monkeypatch.setattr(health, "_migrated", False)
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan",
        lambda self, targets: [("one", False), ("two", False)],
    )
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"].startswith("2 not applied")


def test_a_pulse_expires_and_is_not_written_at_every_beat(beating):
    key = alive.alive_key(wire.QUEUE_EVENTS)
    assert 0 < beating.ttl(key) <= alive.ALIVE_SECONDS
    pulse = alive.Pulse(django_settings.REDIS_URL)
    pulse.names = [wire.QUEUE_EVENTS]
    pulse.beat()
    beating.delete(key)
    pulse.beat()
    assert not beating.exists(key)
    pulse._due = time.monotonic()
    pulse.beat()
    assert beating.exists(key)


def test_a_pulse_without_a_broker_is_silent():
    pulse = alive.Pulse("unix:///nonexistent/redis.sock")
    pulse.names = ["events"]
    pulse.beat()


def test_the_start_line_asks_an_address_that_no_redirect_hides(monkeypatch, tmp_path):
    from apps.common.management.commands import up

    asked, said = [], []
    monkeypatch.setattr(up, "_answers", lambda url: asked.append(url) or True)
    banner = up._Banner(
        0.0, lambda _, line: said.append(line), None, need_sign_ins=False, var=tmp_path
    )
    banner.show_when_ready()
    assert [url.rpartition("/")[2] for url in asked] == ["livez"]
    assert any("Concord answers at" in line for line in said)
