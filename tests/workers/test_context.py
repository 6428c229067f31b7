"""What a recipe reports and saves through its context."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from workers.artifacts import ArtifactMissing, Store, StoreUnreachable
from workers.context import RunContext
from workers.contract.events import CheckpointSaved, Event, Log, Metrics, Progress, RecipeError
from workers.contract.jobs import InputRef, JobSpec, Resume
from workers.train import failure_of


@dataclass
class Notebook:
    events: list[Event] = field(default_factory=list)

    def write(self, event: Event) -> None:
        self.events.append(event)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(tmp_path: Path, clock: Clock, **spec) -> tuple[RunContext, list[Event]]:
    notebook = Notebook()
    job = JobSpec(
        run="r1", attempt=1, kind="ppo", project="p", seed=0, artifacts_url=str(tmp_path), **spec
    )
    context = RunContext(job, Store(str(tmp_path)), tmp_path / "work", notebook, clock=clock)
    context.workdir.mkdir()
    context.flush()
    return context, notebook.events


def test_metrics_are_bundled_within_a_second_and_sent_after_it(tmp_path: Path, clock) -> None:
    context, events = make(tmp_path, clock)
    context.metrics(1, {"loss": 3.0})
    context.metrics(2, {"loss": 2.0})
    assert events == []
    clock.now += 1.0
    context.metrics(3, {"loss": 1.0})
    assert events == [Metrics([1, 2, 3], {"loss": [3.0, 2.0, 1.0]})]


def test_metrics_come_before_the_event_that_follows_them(tmp_path: Path, clock) -> None:
    context, events = make(tmp_path, clock)
    context.metrics(1, {"loss": 3.0})
    context.log("hello")
    assert events == [Metrics([1], {"loss": [3.0]}), Log(["hello"])]


def test_a_metric_that_was_not_measured_at_a_step_gets_no_point_there(
    tmp_path: Path, clock
) -> None:
    context, events = make(tmp_path, clock)
    context.metrics(1, {"loss": 3.0})
    context.metrics(2, {"loss": 2.0, "eval/loss": 2.5})
    context.metrics(3, {"loss": 1.0})
    context.flush()
    assert events == [
        Metrics([1, 3], {"loss": [3.0, 1.0]}),
        Metrics([2], {"loss": [2.0], "eval/loss": [2.5]}),
    ]


def test_numbers_that_are_none_travel_as_words_and_undefined_as_none(tmp_path: Path, clock) -> None:
    context, events = make(tmp_path, clock)
    context.metrics(1, {"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": None})
    context.flush()
    assert events == [Metrics([1], {"a": ["nan"], "b": ["inf"], "c": ["-inf"], "d": [None]})]


def test_progress_is_told_twice_a_second_and_always_at_the_end(tmp_path: Path, clock) -> None:
    context, events = make(tmp_path, clock)
    for step in range(1, 11):
        context.progress(step, 10, "training")
        clock.now += 0.125
    assert [e.step for e in events if isinstance(e, Progress)] == [1, 5, 9, 10]


def test_a_command_once_seen_stays_and_only_cancel_overrides_it(tmp_path: Path, clock) -> None:
    context, _ = make(tmp_path, clock)
    commands = iter([None, "stop", None, "cancel", None])
    context.stop_signal = lambda: next(commands)
    assert [context.should_stop() for _ in range(4)] == [None, "stop", "stop", "cancel"]
    assert context.should_stop() == "cancel"


def test_a_missing_input_names_its_role(tmp_path: Path, clock) -> None:
    context, _ = make(tmp_path, clock)
    with pytest.raises(RecipeError, match="role 'judge'") as raised:
        context.input_path("judge")
    assert raised.value.kind == "missing_input"


def test_an_input_that_is_not_what_it_was_named_by_is_refused(tmp_path: Path, clock) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("{}\n")
    sha256, _ = Store(str(tmp_path)).put_tree(tmp_path / "data", "data")
    ref = InputRef("data", "snapshot", "1", "data", sha256)
    context, _ = make(tmp_path, clock, inputs=(ref,), resume=Resume("data", sha256, 3))
    assert (context.input_path("data") / "train.jsonl").is_file()
    assert context.resume_path() == context.input_path("data")
    (tmp_path / "data" / "train.jsonl").write_text("{} \n")
    with pytest.raises(RecipeError) as raised:
        context.input_path("data")
    assert raised.value.kind == "damaged_input"


def _save(context: RunContext, step: int, *tags: str) -> None:
    folder = context.workdir / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "model.txt").write_text(str(step))
    context.save_checkpoint(folder, step=step, tags=list(tags), metrics={"eval/loss": 1.0 / step})


def test_a_saved_checkpoint_is_announced_with_what_it_needs_to_be_read_back(
    tmp_path: Path, clock
) -> None:
    context, events = make(tmp_path, clock)
    _save(context, 5, "last", "best")
    (saved,) = [e for e in events if isinstance(e, CheckpointSaved)]
    assert saved.tags == ["last", "best"]
    assert saved.metrics == {"eval/loss": 0.2}
    folder = context.store.get_tree(saved.uri, sha256=saved.sha256, cache=tmp_path / "cache")
    assert (folder / "model.txt").read_text() == "5"


def test_old_checkpoints_go_unless_they_hold_a_tag_or_are_among_the_newest_two(
    tmp_path: Path, clock
) -> None:
    context, _ = make(tmp_path, clock)
    _save(context, 1, "failed")
    _save(context, 2, "last", "best")
    _save(context, 3, "last")
    _save(context, 4, "last")
    _save(context, 5, "last")
    kept = sorted(p.name for p in (tmp_path / "runs/r1/attempt-1/checkpoints").iterdir())
    assert kept == ["step-1", "step-2", "step-4", "step-5"]
    _save(context, 6, "last", "best")
    kept = sorted(p.name for p in (tmp_path / "runs/r1/attempt-1/checkpoints").iterdir())
    assert kept == ["step-1", "step-5", "step-6"]


def test_a_failed_checkpoint_never_overwrites_the_last_good_one_of_its_step(
    tmp_path: Path, clock
) -> None:
    context, events = make(tmp_path, clock)
    _save(context, 5, "last", "best")
    folder = context.workdir / "checkpoint"
    (folder / "model.txt").write_text("broken")
    context.save_checkpoint(folder, step=5, tags=["failed"], metrics={})
    good, failed = [e for e in events if isinstance(e, CheckpointSaved)]
    assert good.uri != failed.uri
    for saved, text in ((good, "5"), (failed, "broken")):
        copy = context.store.get_tree(saved.uri, sha256=saved.sha256, cache=tmp_path / "cache")
        assert (copy / "model.txt").read_text() == text


def test_ranks_beyond_the_first_report_and_save_nothing(tmp_path: Path, clock) -> None:
    context, _ = make(tmp_path, clock)
    context.writer = None
    context.metrics(1, {"loss": 1.0})
    context.log("unheard")
    _save(context, 1, "last")
    assert not (tmp_path / "runs").exists()


def test_phases_are_told_until_the_first_step(tmp_path: Path, clock) -> None:
    context, events = make(tmp_path, clock)
    context.phase("loading the models")
    context.phase("loading the models")
    context.phase("checking")
    context.progress(1, 10, "training")
    context.phase("fetching the input judge")
    told = [(e.step, e.phase) for e in events if isinstance(e, Progress)]
    assert told == [(0, "loading the models"), (0, "checking"), (1, "training")]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.exists("a/file"),
        lambda store: store.read_bytes("a/file"),
        lambda store: store.get_file("a/file", sha256="0" * 64, cache=Path("cache")),
        lambda store: store.write_bytes("a/file", b"x"),
        lambda store: store.written_whole("a/file").__enter__(),
        lambda store: store.put_file(Path(__file__), "a/file"),
        lambda store: store.delete_tree("a"),
    ],
)
def test_a_store_whose_mount_is_gone_is_unreachable_and_not_empty(
    use: Callable[[Store], object], tmp_path: Path
) -> None:
    (tmp_path / "artifacts").touch()
    with pytest.raises(StoreUnreachable) as found:
        use(Store(str(tmp_path / "artifacts")))
    failed = failure_of(found.value)
    assert (failed.kind, failed.retryable) == ("store_unreachable", True)


def test_bytes_on_a_full_disk_are_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("a/file", b"before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for name in ("a/file", "a/other"):
            with pytest.raises(OSError, match="No space"):
                store.write_bytes(name, b"after")
    assert store.read_bytes("a/file") == b"before"
    assert store.names("a") == ["file"]


def test_what_is_missing_in_a_store_that_is_there_is_missing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert not store.exists("a/file")
    with pytest.raises(ArtifactMissing):
        store.read_bytes("a/file")
    store.write_bytes("a", b"x")
    with pytest.raises(NotADirectoryError):
        store.read_bytes("a/file")


def test_a_store_that_is_away_for_a_while_costs_a_run_nothing(
    tmp_path: Path, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, events = make(tmp_path, clock)
    context.store = Store(str(tmp_path / "artifacts"))
    (tmp_path / "artifacts").touch()
    pauses: list[float] = []

    def come_back(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            (tmp_path / "artifacts").unlink()

    monkeypatch.setattr("workers.artifacts.time.sleep", come_back)
    _save(context, 1, "last")
    (saved,) = (event for event in events if isinstance(event, CheckpointSaved))
    assert pauses == [1.0, 2.0, 4.0]
    assert context.store.get_tree(saved.uri, sha256=saved.sha256, cache=tmp_path).is_dir()


def test_a_store_that_stays_away_is_given_up_after_a_minute(
    tmp_path: Path, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = make(tmp_path, clock)
    context.store = Store(__file__)  # no folder
    pauses: list[float] = []
    monkeypatch.setattr("workers.artifacts.time.sleep", pauses.append)
    with pytest.raises(StoreUnreachable):
        _save(context, 1, "last")
    assert sum(pauses) == 60
