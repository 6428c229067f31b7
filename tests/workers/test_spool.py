"""The spool: whole lines in order, whatever a trainer or a full disk did to the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.contract import Envelope, Failed, Fault, Finished, Log, envelope_from_json
from workers.emitter import Emitter, event_line
from workers.supervisor.relay import Spool


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
