"""One attempt of a drill in a folder, for tests that start trainers."""

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.contract import (
    Envelope,
    JobSpec,
    Limits,
    Metrics,
    Resume,
    envelope_from_json,
    spec_to_json,
)
from workers.contract.jobs import DATA, EVERY_GPU, ONE, PLAIN
from workers.supervisor.child import end_with_parent

ROOT = Path(__file__).resolve().parents[2]


def drill_spec(
    folder: Path,
    config: Mapping[str, Any],
    *,
    run: str | None = None,
    attempt: int = 1,
    kind: str = "drill",
    resume: Resume | None = None,
    limits: Limits | None = None,
    launcher: str = PLAIN,
    processes: int = EVERY_GPU,
    secret: str = "",
) -> JobSpec:
    return JobSpec(
        run=run or f"run-{secrets.token_hex(4)}",
        attempt=attempt,
        kind=kind,
        project="p",
        seed=3,
        artifacts_url=str(folder / "artifacts"),
        config=config,
        resume=resume,
        limits=limits or Limits(lease_s=2, grace_s=1, max_s=60),
        launcher=launcher,
        layout=ONE if launcher == PLAIN else DATA,
        processes=1 if launcher == PLAIN else processes,
        secret=secret,
    )


def trainer_start(spec: JobSpec, workdir: Path, *words: str) -> "subprocess.Popen[bytes]":
    """`python -m workers.train` as the supervisor starts it, dying with the test process."""
    workdir.mkdir(parents=True, exist_ok=True)
    job = workdir / "job.json"
    job.write_text(json.dumps(spec_to_json(spec)))
    return subprocess.Popen(
        [sys.executable, "-m", "workers.train", str(job), *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def events_in(workdir: Path) -> list[Envelope]:
    path = workdir / "events.jsonl"
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [envelope_from_json(json.loads(line)) for line in whole.splitlines()]


def points(envelopes: list[Envelope]) -> dict[int, float]:
    """step -> value of the drill's metric."""
    found = {}
    for envelope in envelopes:
        if isinstance(envelope.event, Metrics) and "drill/value" in envelope.event.values:
            values = envelope.event.values["drill/value"]
            found.update(zip(envelope.event.steps, values, strict=True))
    return found
