"""Fixtures of the tests that supervise a trainer."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import drill_spec
from tests.workers.supervised import Web
from workers.contract import JobSpec
from workers.supervisor import Supervisor


@pytest.fixture
def web() -> Iterator[Web]:
    with contextlib.closing(Web()) as web:
        yield web


@pytest.fixture
def supervise(tmp_path: Path, web: Web) -> Callable[..., tuple[str, JobSpec]]:
    def run(
        config: dict[str, Any],
        *,
        leaving: Any = lambda: False,
        clock: Any = time.monotonic,
        **spec: Any,
    ) -> Any:
        job = drill_spec(tmp_path, config, **spec)
        supervisor = Supervisor(
            job,
            line=web,
            work=tmp_path / "work",
            created_at=time.time(),
            leaving=leaving,
            clock=clock,
        )
        return supervisor.run(), job

    return run
