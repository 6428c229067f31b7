"""The spool: whole lines in order, whatever a trainer or a full disk did to the file."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempt import drill_spec
from workers.contract import (
    ContractError,
    Envelope,
    Failed,
    Fault,
    Finished,
    JobSpec,
    Log,
    Metrics,
    NewerPeer,
    Progress,
    envelope_from_json,
    spec_from_json,
    spec_to_json,
    wire,
)
from workers.contract.signing import is_signed
from workers.emitter import Emitter, event_line
from workers.supervisor import Supervisor
from workers.supervisor.connection import Line
from workers.supervisor.relay import Spool
from workers.supervisor.supervise import attempt_folder
from workers.tasks import WAITS, leave, refuse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def spool(path: Path) -> Spool:
    return Spool(path, run="r", attempt=1)


def line(seq: int, text: str = "x") -> bytes:
    return event_line(Envelope("r", 1, seq, 0.0, Log(lines=[text])))


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def everything(reader: Spool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while batch := reader.read():
        events += batch
    return events


def test_it_reads_on_where_it_stopped(path: Path) -> None:
    reader = spool(path)
    assert reader.read() == []
    add(path, line(1) + line(2))
    assert [e["seq"] for e in reader.read()] == [1, 2]
    assert reader.read() == []
    add(path, line(3))
    assert [e["seq"] for e in reader.read()] == [3]


def test_half_a_line_is_left_until_it_is_whole(path: Path) -> None:
    reader = spool(path)
    whole = line(1)
    add(path, whole[:10])
    assert reader.read() == []
    add(path, whole[10:])
    assert [e["seq"] for e in reader.read()] == [1]


def test_a_line_longer_than_a_block_is_read(path: Path) -> None:
    add(path, line(1) + line(2, "y" * 3_000_000) + line(3))
    assert [e["seq"] for e in everything(spool(path))] == [1, 2, 3]


def test_garbage_between_events_is_passed_over(path: Path) -> None:
    add(path, line(1) + b"warning: something\n" + b"\n[1, 2]\n" + b'{"seq": "x"}\n' + line(2))
    assert [e["seq"] for e in everything(spool(path))] == [1, 2]


def test_a_lost_event_leaves_a_note_in_its_place(path: Path) -> None:
    add(path, line(1) + line(4))
    events = everything(spool(path))
    assert [e["seq"] for e in events] == [1, 2, 3, 4]
    assert envelope_from_json(events[1]).event.level == "error"


def test_an_event_that_comes_twice_is_read_once(path: Path) -> None:
    add(path, line(1) + line(1) + line(2))
    assert [e["seq"] for e in everything(spool(path))] == [1, 2]


def test_a_trainer_without_a_last_word_is_given_one_after_its_torn_line(path: Path) -> None:
    reader = spool(path)
    add(path, line(1) + line(2) + line(3)[:20])
    reader.read()
    reader.close_with(Log(lines=["tail"]), Failed("killed", Fault.MACHINE, "It was killed."))
    assert [(e["seq"], e["type"]) for e in everything(reader)] == [(3, "Log"), (4, "Failed")]
    assert reader.ended
    assert [json.loads(text)["seq"] for text in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_a_last_word_counts_from_the_end_even_when_little_was_read_yet(path: Path) -> None:
    add(path, b"".join(line(n, "z" * 1000) for n in range(1, 3001)))  # several blocks
    reader = spool(path)
    reader.read()
    assert 0 < reader.last_seq < 3000
    reader.close_with(Failed("killed", Fault.MACHINE, "It was killed."))
    assert [e["seq"] for e in everything(reader)][-1] == 3001


def test_a_trainers_own_last_word_stands(path: Path) -> None:
    emitter = Emitter(path, run="r", attempt=1)
    emitter.write(Finished(step=3))
    reader = spool(path)
    reader.close_with(Failed("killed", Fault.MACHINE, "It was killed."))
    assert [e["type"] for e in everything(reader)] == ["Finished"]


def test_with_a_full_disk_the_last_word_is_said_all_the_same(path: Path) -> None:
    path.mkdir()  # nothing can be written there
    reader = spool(path / "no" / "file")
    reader.close_with(Failed("disk_full", Fault.MACHINE, "No space left."))
    assert [(e["seq"], e["type"]) for e in everything(reader)] == [(1, "Failed")]
    assert everything(reader) == []


# The emitter: whole lines of strict JSON, numbered without a gap.


def lines(path: Path) -> list[dict]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return [json.loads(text, parse_constant=refuse) for text in path.read_text().splitlines()]


def test_events_are_numbered_from_one_with_their_address(tmp_path: Path) -> None:
    emitter = Emitter(tmp_path / "events.jsonl", run="r", attempt=2, clock=lambda: 5.0)
    emitter.write(Log(lines=["hello"]))
    emitter.write(Progress(step=1))
    first, second = map(envelope_from_json, lines(tmp_path / "events.jsonl"))
    assert (first.run, first.attempt, first.seq, first.at) == ("r", 2, 1, 5.0)
    assert (second.seq, second.event) == (2, Progress(step=1))


def test_what_json_does_not_know_is_written_as_words(tmp_path: Path) -> None:
    emitter = Emitter(tmp_path / "events.jsonl", run="r", attempt=1)
    odd = {"loss": float("nan"), "path": tmp_path, "nested": [float("inf"), (-float("inf"),)]}
    emitter.write(Finished(step=1, summary=odd))
    (event,) = lines(tmp_path / "events.jsonl")
    assert event["event"]["summary"] == {
        "loss": "nan",
        "path": str(tmp_path),
        "nested": ["inf", ["-inf"]],
    }


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    emitter = Emitter(tmp_path / "events.jsonl", run="r", attempt=1)

    def report(thread: int) -> None:
        for _ in range(200):
            emitter.write(Log(lines=[str(thread) * 500]))

    threads = [threading.Thread(target=report, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event["seq"] for event in lines(tmp_path / "events.jsonl")] == list(range(1, 801))


@pytest.mark.parametrize(
    ("events", "step"),
    [
        ([], None),
        ([Log(lines=["x"])], None),
        ([Progress(step=4), Metrics(steps=[5, 9], values={"a": [1.0, 2.0]}), Progress(step=8)], 9),
    ],
)
def test_it_knows_the_highest_step_reported(tmp_path: Path, events: list, step: int | None) -> None:
    emitter = Emitter(tmp_path / "events.jsonl", run="r", attempt=1)
    for event in events:
        emitter.write(event)
    assert emitter.step == step


# A worker that cannot read a job: an older one leaves it to a newer one, a broken job ends.


class Said(Line):
    """The real line, whose batches a test reads."""

    def __init__(self) -> None:
        super().__init__(os.environ["REDIS_URL"])
        self.batches: list[dict[str, Any]] = []

    def send(self, batch: dict[str, Any]) -> bool:
        self.batches.append(batch)
        return True


@pytest.fixture
def wire_line() -> Iterator[Said]:
    with contextlib.closing(Said()) as wire_line:
        wire_line.redis.delete("short")
        yield wire_line
        wire_line.redis.delete("short")


def job_of(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return spec_to_json(drill_spec(tmp_path, {})) | {"secret": "s", "queue": "short"} | changes


def test_a_job_of_a_newer_version_waits_in_its_queue_for_a_newer_worker(
    wire_line: Said, tmp_path: Path
) -> None:
    job = job_of(tmp_path, version=2)
    with pytest.raises(NewerPeer) as raised:
        spec_from_json(job)
    leave(job, str(raised.value), line=wire_line, created_at=5.0, pause_s=0.0)
    from apps.training import dispatch  # the web side sees it there and sends no second one

    assert dispatch.jobs_waiting("short") == {(job["run"], job["attempt"])}
    (batch,) = wire_line.batches
    assert (batch["events"], batch["note"]) == ([], WAITS)
    assert is_signed(batch, "s")


def test_a_cancelled_job_does_not_circulate(wire_line: Said, tmp_path: Path) -> None:
    job = job_of(tmp_path, version=2)
    wire_line.redis.set(wire.control_key(job["run"]), "cancel", ex=60)
    leave(job, "job: version 2", line=wire_line, created_at=5.0, pause_s=0.0)
    assert wire_line.redis.llen("short") == 0


def test_a_newer_field_of_a_job_is_ignored_and_a_missing_one_has_its_default(
    tmp_path: Path,
) -> None:
    job = job_of(tmp_path, fancy={"new": 1})
    for name in ("secret", "layout", "processes", "baseline", "limits"):
        job.pop(name, None)
    spec = spec_from_json(job)
    assert (spec.secret, spec.layout, spec.processes) == ("", "one", 1)


def test_a_job_that_breaks_the_contract_ends_its_attempt(wire_line: Said, tmp_path: Path) -> None:
    refuse(
        job_of(tmp_path, inputs=[5]),
        "job.inputs[0]: expected an object",
        line=wire_line,
    )
    (batch,) = wire_line.batches
    assert is_signed(batch, "s")
    assert envelope_from_json(batch["events"][0]).event.kind == "unreadable_job"


@pytest.mark.parametrize("job", [None, 5, {}, {"run": "../x", "attempt": 1, "queue": "short"}])
def test_nothing_is_said_of_a_job_without_an_address(wire_line: Said, job: Any) -> None:
    refuse(job, "it is no job", line=wire_line)
    leave(job, "it is no job", line=wire_line, created_at=0.0, pause_s=0.0)
    assert (wire_line.batches, wire_line.redis.llen("short")) == ([], 0)


@pytest.mark.parametrize(
    "run", ["../../x", "..", ".", "/etc", "a/b", "a\\b", "", "-x", "a" * 41, "a\n", "é", 5, None]
)
def test_a_run_that_is_no_id_names_no_folder(tmp_path: Path, wire_line: Said, run: Any) -> None:
    with pytest.raises(ContractError):
        spec_from_json(job_of(tmp_path, run=run))
    forged = JobSpec(run, 1, "drill", "p", 1, str(tmp_path / "artifacts"))
    with pytest.raises(ContractError):
        Supervisor(forged, line=wire_line, work=tmp_path / "work")
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
