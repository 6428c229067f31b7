"""What a run reports reaches other tools, and whatever they do, the run continues."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from workers.contract.events import Event, Failed, Fault, Finished, Histogram, Log, Metrics
from workers.contract.jobs import InputRef, JobSpec
from workers.tracking import mirror as mirrors
from workers.tracking.mirror import Mirror, Mirrored, mirrored

SPEC = JobSpec(
    "run7",
    2,
    "ppo",
    "demo",
    0,
    "/nowhere",
    {"learning_rate": 1e-3, "guards": {"length": "off"}},
    (InputRef("sft", "checkpoint", "ck1", "inputs/x", "ab" * 32),),
)
POINTS = Metrics([1, 2], {"objective/kl": [0.5, "nan"], "eval/score": [None, 2.0]})
DONE = Finished(2, {"parameters": 12, "first": {"eval/score": 1.0}})


class Notes:
    """A writer that keeps what it is told."""

    def __init__(self) -> None:
        self.step: int | None = 2
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)

    @property
    def warnings(self) -> list[str]:
        return [line for e in self.events if isinstance(e, Log) for line in e.lines]


class Tool:
    """A tool that keeps what it is told, may be slow, and may fail."""

    def __init__(self, *, hold: threading.Event | None = None, fails: bool = False) -> None:
        self.hold, self.fails = hold, fails
        self.points: list[tuple[int, dict[str, float]]] = []
        self.histograms: list[Histogram] = []
        self.outcome: tuple[str, Any] | None = None

    def begin(self) -> None:
        if self.hold is not None:
            self.hold.wait(20)
        if self.fails:
            raise ConnectionError("no route to host")

    def metrics(self, step: int, at: float, values: dict[str, float]) -> None:
        self.points.append((step, values))

    def histogram(self, event: Histogram) -> None:
        self.histograms.append(event)

    def end(self, outcome: str, summary: Any) -> None:
        self.outcome = (outcome, dict(summary))


def beside(*tools: Tool, most_waiting: int = 100) -> tuple[Notes, Mirrored]:
    notes = Notes()
    fed = [Mirror(f"tool{i}", tool, most_waiting=most_waiting) for i, tool in enumerate(tools)]
    return notes, Mirrored(notes, fed, [])


def test_without_the_switch_nothing_stands_between() -> None:
    notes = Notes()
    assert mirrored(notes, SPEC, "") is notes


def test_figures_and_outcome_reach_the_tool_and_the_run_alike() -> None:
    tool = Tool()
    notes, writer = beside(tool)
    for event in (POINTS, Histogram(2, "reward", [0.0, 1.0], [3]), DONE):
        writer.write(event)
    assert notes.events == [POINTS, Histogram(2, "reward", [0.0, 1.0], [3]), DONE]
    assert [step for step, _ in tool.points] == [1, 2]
    assert tool.points[0][1] == {"objective/kl": 0.5}  # what was not measured is not sent
    assert str(tool.points[1][1]) == "{'objective/kl': nan, 'eval/score': 2.0}"
    assert tool.histograms[0].counts == [3]
    assert tool.outcome == ("finished", {"steps": 2, "parameters": 12})


def test_a_failure_is_told_as_one() -> None:
    tool = Tool()
    _, writer = beside(tool)
    writer.write(Failed("out_of_memory", Fault.MACHINE, "no room"))
    assert tool.outcome is not None
    assert (tool.outcome[0], tool.outcome[1]["failure"]) == ("failed", "out_of_memory")


def test_a_tool_that_fails_is_one_warning_and_the_others_go_on() -> None:
    broken, sound = Tool(fails=True), Tool()
    notes, writer = beside(broken, sound)
    for _ in range(3):
        writer.write(POINTS)
    writer.write(DONE)
    assert len(notes.warnings) == 1
    assert "tool0: failed: ConnectionError" in notes.warnings[0]
    assert notes.events[-1] is DONE  # the outcome is the last word
    assert len(sound.points) == 6


def test_a_tool_that_hangs_neither_slows_the_run_nor_holds_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirrors, "END_S", 0.2)
    hold = threading.Event()
    notes, writer = beside(Tool(hold=hold), most_waiting=5)
    began = time.monotonic()
    for _ in range(1000):
        writer.write(POINTS)
    assert time.monotonic() - began < 20
    writer.write(DONE)
    assert time.monotonic() - began < 20
    assert "keep up" in notes.warnings[0]
    assert notes.events[-1] is DONE
    hold.set()


def test_what_a_slow_tool_missed_is_counted() -> None:
    hold = threading.Event()
    tool = Tool(hold=hold)
    notes, writer = beside(tool, most_waiting=5)
    for _ in range(8):
        writer.write(POINTS)
    hold.set()
    writer.write(DONE)
    assert ["3 events" in warning for warning in notes.warnings] == [True]
    assert len(tool.points) == 2 * 5


def test_a_misspelt_tool_is_a_warning_that_knows_what_was_meant() -> None:
    notes = Notes()
    mirrored(notes, SPEC, "tensorbord").write(POINTS)
    assert "'tensorbord'" in notes.warnings[0]
    assert "is 'tensorboard' meant?" in notes.warnings[0]


def test_a_missing_package_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it raises ImportError
    monkeypatch.delitem(sys.modules, "workers.tracking.wandb", raising=False)
    notes = Notes()
    writer = mirrored(notes, SPEC, "wandb")
    for event in (POINTS, DONE):
        writer.write(event)
    assert len(notes.warnings) == 1
    assert "not installed" in notes.warnings[0]
    assert notes.events[-1] is DONE


# --- the tools, over packages that only keep what they are told ---


class Recorder:
    """Stands for a client of a package: every call is kept, everything answers with itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple, dict]] = []
        self.summary: dict[str, Any] = {}
        self.info = SimpleNamespace(run_id="r1")
        self.experiment_id = "e1"

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> "Recorder":
            self.calls.append((name, args, kwargs))
            return self

        return call

    def of(self, name: str) -> list[tuple[tuple, dict]]:
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Puts a package of the given attributes where imports look for it."""
    monkeypatch.setenv("TRACKING_DIR", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)

    def put(package: str, tool: str, **attributes: Any) -> None:
        module = ModuleType(package)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, package, module)
        monkeypatch.delitem(sys.modules, f"workers.tracking.{tool}", raising=False)

    yield put
    for tool in ("tensorboard", "mlflow", "wandb"):
        sys.modules.pop(f"workers.tracking.{tool}", None)


def through(name: str) -> None:
    notes = Notes()
    writer = mirrored(notes, SPEC, name)
    for event in (POINTS, Histogram(2, "reward", [0.0, 1.0, 2.0], [3, 1]), DONE):
        writer.write(event)
    assert notes.warnings == []


def test_tensorboard_gets_scalars_histograms_and_the_configuration(fake, tmp_path: Path) -> None:
    recorder, folders = Recorder(), []

    def summary_writer(folder: str, **_: Any) -> Recorder:
        folders.append(folder)
        return recorder

    fake("torch.utils.tensorboard", "tensorboard", SummaryWriter=summary_writer)
    through("tensorboard")
    assert folders == [str(tmp_path / "tensorboard" / "demo" / "run7" / "attempt-2")]
    scalars = [(args[0], kwargs["global_step"]) for args, kwargs in recorder.of("add_scalar")]
    assert scalars == [("objective/kl", 1), ("objective/kl", 2), ("eval/score", 2)]
    drawn = recorder.of("add_histogram_raw")[0][1]
    assert (drawn["sum"], drawn["num"], drawn["bucket_limits"]) == (3.0, 4, [1.0, 2.0])
    tables = dict(args for args, _ in recorder.of("add_text"))
    assert "| learning_rate | 0.001 |" in tables["config"]
    assert "| input.sft | checkpoint ck1 abababababab |" in tables["config"]
    assert "| outcome | finished |" in tables["outcome"]
    assert recorder.of("close")


def test_mlflow_gets_batches_parameters_and_a_status(fake, tmp_path: Path) -> None:
    client, uris = Recorder(), []

    def mlflow_client(tracking_uri: str) -> Recorder:
        uris.append(tracking_uri)
        return client

    entities = {name: lambda *a: a for name in ("Metric", "Param", "RunTag")}
    fake("mlflow.entities", "mlflow", **entities)
    fake("mlflow", "mlflow", MlflowClient=mlflow_client)
    through("mlflow")
    assert uris == [(tmp_path / "mlflow").as_uri()]
    batches = [kwargs for _, kwargs in client.of("log_batch")]
    params = dict(batches[0]["params"])
    assert (params["learning_rate"], params["guards"]) == ("0.001", '{"length": "off"}')
    named = [(m[0], m[3]) for batch in batches for m in batch.get("metrics", [])]
    assert named == [("objective/kl", 1), ("objective/kl", 2), ("eval/score", 2)]
    assert client.of("set_terminated")[0][0] == ("r1", "FINISHED")


def test_wandb_runs_offline_without_a_key_and_takes_steps_as_a_column(fake) -> None:
    run, begun = Recorder(), []

    def init(**kwargs: Any) -> Recorder:
        begun.append(kwargs)
        return run

    fake("wandb", "wandb", init=init, Settings=dict, Histogram=lambda **kwargs: kwargs)
    through("wandb")
    assert (begun[0]["mode"], begun[0]["id"], begun[0]["group"]) == ("offline", "run7-2", "run7")
    rows = [args[0] for args, _ in run.of("log")]
    assert rows[0] == {"objective/kl": 0.5, "step": 1}
    assert rows[2]["step"] == 2
    assert run.summary["outcome"] == "finished"
    assert run.of("finish")[0][1] == {"exit_code": 0}
