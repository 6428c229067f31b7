"""A worker that cannot read a job: an older one leaves it to a newer one, a broken job ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import drill_spec
from workers.contract import (
    ContractError,
    JobSpec,
    NewerPeer,
    envelope_from_json,
    spec_from_json,
    spec_to_json,
    wire,
)
from workers.contract.signing import is_signed
from workers.supervisor import Supervisor
from workers.supervisor.connection import Line
from workers.supervisor.supervise import attempt_folder
from workers.tasks import WAITS, leave, refuse


class Said(Line):
    """The real line, whose batches a test reads."""

    def __init__(self) -> None:
        super().__init__(os.environ["REDIS_URL"])
        self.batches: list[dict[str, Any]] = []

    def send(self, batch: dict[str, Any]) -> bool:
        self.batches.append(batch)
        return True


@pytest.fixture
def line() -> Iterator[Said]:
    with contextlib.closing(Said()) as line:
        line.redis.delete("short")
        yield line
        line.redis.delete("short")


def job_of(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return spec_to_json(drill_spec(tmp_path, {})) | {"secret": "s", "queue": "short"} | changes


def test_a_job_of_a_newer_version_waits_in_its_queue_for_a_newer_worker(
    line: Said, tmp_path: Path
) -> None:
    job = job_of(tmp_path, version=2)
    with pytest.raises(NewerPeer) as raised:
        spec_from_json(job)
    leave(job, str(raised.value), line=line, created_at=5.0, pause_s=0.0)
    from apps.training import dispatch  # the web side sees it there and sends no second one

    assert dispatch.jobs_waiting("short") == {(job["run"], job["attempt"])}
    (batch,) = line.batches
    assert (batch["events"], batch["note"]) == ([], WAITS)
    assert is_signed(batch, "s")


def test_a_cancelled_job_does_not_circulate(line: Said, tmp_path: Path) -> None:
    job = job_of(tmp_path, version=2)
    line.redis.set(wire.control_key(job["run"]), "cancel", ex=60)
    leave(job, "job: version 2", line=line, created_at=5.0, pause_s=0.0)
    assert line.redis.llen("short") == 0


def test_a_newer_field_of_a_job_is_ignored_and_a_missing_one_has_its_default(
    tmp_path: Path,
) -> None:
    job = job_of(tmp_path, fancy={"new": 1})
    for name in ("secret", "layout", "processes", "baseline", "limits"):
        job.pop(name, None)
    spec = spec_from_json(job)
    assert (spec.secret, spec.layout, spec.processes) == ("", "one", 1)


def test_a_job_that_breaks_the_contract_ends_its_attempt(line: Said, tmp_path: Path) -> None:
    refuse(job_of(tmp_path, inputs=[5]), "job.inputs[0]: expected an object", line=line)
    (batch,) = line.batches
    assert is_signed(batch, "s")
    assert envelope_from_json(batch["events"][0]).event.kind == "unreadable_job"  # type: ignore[union-attr]


@pytest.mark.parametrize("job", [None, 5, {}, {"run": "../x", "attempt": 1, "queue": "short"}])
def test_nothing_is_said_of_a_job_without_an_address(line: Said, job: Any) -> None:
    refuse(job, "it is no job", line=line)
    leave(job, "it is no job", line=line, created_at=0.0, pause_s=0.0)
    assert (line.batches, line.redis.llen("short")) == ([], 0)


@pytest.mark.parametrize(
    "run", ["../../x", "..", ".", "/etc", "a/b", "a\\b", "", "-x", "a" * 41, "a\n", "é", 5, None]
)
def test_a_run_that_is_no_id_names_no_folder(tmp_path: Path, line: Said, run: Any) -> None:
    with pytest.raises(ContractError):
        spec_from_json(job_of(tmp_path, run=run))
    forged = JobSpec(run, 1, "drill", "p", 1, str(tmp_path / "artifacts"))
    with pytest.raises(ContractError):
        Supervisor(forged, line=line, work=tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_work_folder_leads_no_attempt_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ContractError):
        attempt_folder(tmp_path / "work", JobSpec("run", 1, "drill", "p", 1, "/a"))


def test_a_worker_tells_its_trainer_no_secret(supervise: Any, web: Any, tmp_path: Path) -> None:
    seen = []
    web.after = (1, lambda: seen.append(next((tmp_path / "work").rglob("job.json")).read_text()))
    supervise({"steps": 2, "step_seconds": 0}, secret="of the attempt")
    assert "of the attempt" not in seen[0]
