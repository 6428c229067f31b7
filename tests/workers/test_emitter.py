"""The emitter: whole lines of strict JSON, numbered without a gap."""

import json
import threading
from pathlib import Path

import pytest

from workers.contract import Finished, Log, Metrics, Progress, envelope_from_json
from workers.emitter import Emitter


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
