"""Workers for a headless demo: what is missing is started, what others run is left alone."""

import pytest

from apps.common import health
from apps.loop.local import NEEDED, LocalWorkers


@pytest.fixture
def started(monkeypatch, settings, tmp_path) -> list[str]:
    settings.VAR_DIR = tmp_path
    names: list[str] = []
    monkeypatch.setattr(
        "apps.common.processes.Supervisor.add", lambda self, program: names.append(program.name)
    )
    return names


def test_only_what_gives_no_sign_of_life_is_started(started: list[str], monkeypatch) -> None:
    monkeypatch.setattr(health, "part", lambda n: None if n == "training worker" else "silent")
    workers = LocalWorkers(lambda line: None)
    workers.ensure()
    workers.ensure()
    assert sorted(started) == ["events", "imports", "scheduler"]


def test_what_others_stopped_running_is_taken_over(started: list[str], monkeypatch) -> None:
    alive = set(health.PARTS)
    monkeypatch.setattr(health, "part", lambda n: None if n in alive else "silent")
    workers = LocalWorkers(lambda line: None)
    workers.ensure()
    assert started == []
    alive.discard("house worker")
    workers.ensure()
    assert started == ["events"]


def test_every_part_of_a_healthy_site_is_covered() -> None:
    assert {part for parts in NEEDED.values() for part in parts} == set(health.PARTS)
