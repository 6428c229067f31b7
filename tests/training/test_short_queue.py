"""A check works while a training occupies the main queue."""

import hashlib
import json
from collections.abc import Callable, Iterator

import pytest

from apps.accounts.models import Project
from apps.training import services
from apps.training.models import Artifact, Run
from tests.training.stack import QUICK, Process, Stack, celery, wait_until
from workers.artifacts import Store

pytestmark = [pytest.mark.stack, pytest.mark.spread]


@pytest.fixture
def short_worker(stack: Stack) -> Iterator[Process]:
    """As `manage.py up` runs one beside the worker of the main queues."""
    environment = {
        "ARTIFACTS_URL": str(stack.artifacts),
        "WORK_DIR": str(stack.work),
        "DATABASE_URL": "",
        "RUN_LEASE_SECONDS": str(QUICK["RUN_LEASE_SECONDS"]),
        "OMP_NUM_THREADS": "1",
    }
    output = stack.artifacts.parent / "short.log"
    process = Process(celery("workers.celery", "short", "short"), environment, output)
    process.start()
    yield process
    process.close()


def rollouts_of(run: Run, stack: Stack) -> Artifact:
    rows = [
        {
            "step": 1 + i // 50,
            "prompt": [{"role": "user", "content": f"prompt {i}"}],
            "response": "the same answer",
            "tokens": 3,
            "reward": 0.5,
        }
        for i in range(200)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    Store(str(stack.artifacts)).write_bytes("kept/rollouts.jsonl", text)
    return Artifact.objects.create(
        run=run,
        attempt=1,
        seq=10_000,
        name="rollouts.jsonl",
        uri="kept/rollouts.jsonl",
        sha256=hashlib.sha256(text).hexdigest(),
    )


def test_a_check_of_a_live_run_does_not_wait_for_it(
    stack: Stack, short_worker: Process, drill: Callable[..., Run], project: Project
) -> None:
    training = drill(steps=100_000, step_seconds=0.05)
    waiting = drill(steps=5)
    wait_until(lambda: Run.objects.get(pk=training.pk).step >= 3, what="a training at work")
    check = services.run_launch(
        project=project,
        kind="check",
        name="Rewards",
        config={"check": "reward_plot"},
        inputs={"rollouts": rollouts_of(training, stack)},
        queue="cpu",
        about=training,
    )
    assert check.queue == "short", "whatever is asked for"
    wait_until(
        lambda: not Run.objects.get(pk=check.pk).is_live,
        meanwhile=services.runs_sweep,
        seconds=150,
        what="an answer",
    )
    check.refresh_from_db()
    assert check.summary["outcome"] == "confirms", (check.failure_message, stack.log()[-2000:])
    assert "every one of 200 is 0.50" in check.summary["words"]
    assert Run.objects.get(pk=training.pk).state == "running"
    assert Run.objects.get(pk=waiting.pk).state == "queued", "the main queue is occupied"
