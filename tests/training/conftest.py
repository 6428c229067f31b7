"""Fixtures of the job path."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project
from apps.training import services
from apps.training.models import Run
from tests.training.stack import QUICK, Stack


@pytest.fixture
def artifacts(tmp_path: Path, settings: Settings) -> Path:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    return tmp_path / "artifacts"


@pytest.fixture(scope="package")
def running_stack(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Started once: a worker takes two seconds to come up."""
    with Stack(tmp_path_factory.mktemp("stack")).running() as stack:
        yield stack


@pytest.fixture
def stack(running_stack: Stack, transactional_db: None, settings: Settings) -> Iterator[Stack]:
    settings.ARTIFACTS_URL = str(running_stack.artifacts)
    for name, value in QUICK.items():
        setattr(settings, name, value)
    running_stack.revive()
    yield running_stack
    for pid in running_stack.trainers():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def drill(project: Project, tmp_path: Path) -> Callable[..., Run]:
    """Launch a drill; keyword arguments go into its configuration."""

    def launch(**config: Any) -> Run:
        config.setdefault("witness", str(tmp_path / "witness.jsonl"))
        return services.run_launch(
            project=project, kind="drill", name="a drill", config=config, inputs={}, seed=3
        )

    return launch
