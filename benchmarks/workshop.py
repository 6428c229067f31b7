"""Runs real recipes in this process, and keeps what they leave in a folder."""

import importlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.artifacts import Store
from workers.context import RunContext
from workers.contract.events import CheckpointSaved, Event, Metrics, RecipeError
from workers.contract.jobs import InputRef, JobSpec
from workers.train import preflight


@dataclass
class Outcome:
    """What a run reported: metrics by name and step, other events in order, how it ended."""

    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    message: str = ""  # why it failed, in words

    def all(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Writer:
    """Takes events; a saved checkpoint is shown to `on_checkpoint` while its files are there."""

    outcome: Outcome
    on_checkpoint: Callable[[CheckpointSaved], None]

    def write(self, event: Event) -> None:
        if isinstance(event, Metrics):
            for name, values in event.values.items():
                self.outcome.curves.setdefault(name, {}).update(
                    zip(event.steps, values, strict=True)
                )
            return
        self.outcome.events.append(event)
        if isinstance(event, CheckpointSaved):
            self.on_checkpoint(event)


@dataclass
class Workshop:
    """A store in `root` and what was put there, by name. `tokenizer` makes that of its models;
    what a run fails with is kept where its kind begins with one of `kept_failures`, and raised
    where not."""

    root: Path
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    kept_failures: tuple[str, ...] = ("guard_",)
    refs: dict[str, InputRef] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store(str(self.root / "store"))

    def put_model(self, name: str, model: PreTrainedModel) -> None:
        folder = self.root / "models" / name
        model.save_pretrained(folder)
        self.tokenizer().save_pretrained(folder)
        self._put(name, folder, "checkpoint")

    def put_snapshot(self, name: str, **files: Iterable[Mapping[str, Any]]) -> None:
        folder = self.root / "snapshots" / name
        folder.mkdir(parents=True, exist_ok=True)
        for split, rows in files.items():
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._put(name, folder, "snapshot")

    def _put(self, name: str, folder: Path, kind: str) -> None:
        sha256, _ = self.store.put_tree(folder, f"inputs/{name}")
        self.refs[name] = InputRef(name, kind, name, f"inputs/{name}", sha256)

    def folder_of(self, name: str) -> Path:
        return self.root / "store" / self.refs[name].uri

    def run(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Any],
        *,
        seed: int,
        on_checkpoint: Callable[[CheckpointSaved], None] = lambda event: None,
        **inputs: str,
    ) -> Outcome:
        """The recipe `kind` with `inputs` (role: name of what was put). A run that was stopped has
        its reason in `failure`; its last checkpoint becomes an input called `name`."""
        roles = tuple(
            InputRef(role, ref.kind, ref.id, ref.uri, ref.sha256)
            for role, ref in ((role, self.refs[held]) for role, held in inputs.items())
        )
        spec = JobSpec(
            run=name,
            attempt=1,
            kind=kind,
            project="benchmark",
            seed=seed,
            artifacts_url=str(self.root / "store"),
            config=dict(config),
            inputs=roles,
        )
        folder = self.root / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        outcome = Outcome()
        ticks = itertools.count(step=10)  # time flies: nothing is bundled or left out
        context = RunContext(
            spec,
            self.store,
            folder,
            Writer(outcome, on_checkpoint),
            clock=lambda: next(ticks),
            preflight=preflight,
        )
        try:
            outcome.summary = importlib.import_module(f"workers.recipes.{kind}").run(context)
        except RecipeError as error:
            if not error.kind.startswith(self.kept_failures):
                raise
            outcome.failure, outcome.message = error.kind, str(error)
        context.flush()
        saved = outcome.all(CheckpointSaved)
        if saved:
            self.refs[name] = InputRef(name, "checkpoint", name, saved[-1].uri, saved[-1].sha256)
        return outcome

    def clear(self, name: str) -> None:
        """Throw away what the run `name` left, but for what was put."""
        for folder in (self.root / "work" / name, self.root / "store" / "runs" / name):
            rmtree(folder, ignore_errors=True)
        self.refs.pop(name, None)
