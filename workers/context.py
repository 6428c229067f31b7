"""What a recipe sees of the world: its job, its inputs, a way to report and a way to save.

`workers.train` builds one `RunContext` and calls `workers.recipes.<kind>.run(context)`. It emits
`Opened` before that call and `Finished`, `Failed` or `Cancelled` after it; a recipe emits the
rest, mostly through the methods below. No torch here: `train` must be able to report a broken
configuration before two seconds of imports.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from workers import ranks
from workers.artifacts import ArtifactError, Store, StoreUnreachable, cache_folder, patiently
from workers.contract.events import (
    ArtifactSaved,
    CheckpointSaved,
    Event,
    Evidence,
    Fault,
    Log,
    Metrics,
    Progress,
    RecipeError,
    SplitRead,
)
from workers.contract.jobs import KEPT_CHECKPOINTS, InputRef, JobSpec

METRICS_FLUSH_S = 1.0
PROGRESS_INTERVAL_S = 0.5
_COMMANDS = (None, "stop", "cancel")  # weakest first


class EventWriter(Protocol):
    """Where events go; `workers.emitter` numbers them and appends them to a file."""

    def write(self, event: Event) -> None: ...


class Preflight(Protocol):
    """What looks at a run before its first step; `workers.preflight.run`."""

    def check_memory(self, context: "RunContext", kind: str, settings: Any) -> Any: ...

    def run_preflight(self, context: "RunContext", kind: str, settings: Any, parts: Any) -> Any: ...


@dataclass
class RunContext:
    """One attempt of one run.

    `writer` is None on every rank but the first: those train along and report nothing.
    `stop_signal` answers None, "stop" (save, keep, finish early) or "cancel"; it is asked once a
    step, so it must be cheap. `stopped` holds the command once it was seen, and stays.
    """

    spec: JobSpec
    store: Store
    workdir: Path
    writer: EventWriter | None = None
    stop_signal: Callable[[], str | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    preflight: Callable[[], Preflight] | None = None  # loads it: it imports torch
    stopped: str | None = None
    said: set[str] = field(default_factory=set)  # rules of the evidence reported so far
    _pending: list[tuple[int, dict[str, float | str | None]]] = field(default_factory=list)
    _flushed_at: float = field(default=-math.inf)
    _progress_at: float = field(default=-math.inf)
    _phase: str = ""
    _saved: dict[int, list[str]] = field(default_factory=dict)  # step -> tags
    _datasets: dict[Path, str] = field(default_factory=dict)  # folder -> role
    _read: set[tuple[str, str]] = field(default_factory=set)  # role and split, already reported

    # --- before the first step ---

    def check_memory(self, kind: str, settings: Any) -> None:
        """Before anything is loaded: ends a run that cannot fit."""
        self.phase("reckoning the memory")
        self._looker().check_memory(self, kind, settings)

    def look_before(self, kind: str, settings: Any, parts: Any) -> Any:
        """The report of the preflight on `parts` (`workers.preflight.findings`); ends a run whose
        fault it finds. On a fresh start only."""
        self.phase("checking data, reward and models before the first step")
        return self._looker().run_preflight(self, kind, settings, parts)

    def _looker(self) -> Preflight:
        if self.preflight is None:
            raise RuntimeError("whoever made this context gave it no preflight")
        return self.preflight()

    # --- reporting ---

    def emit(self, event: Event) -> None:
        """Report `event`, after whatever metrics were measured before it."""
        self.flush()
        if isinstance(event, Evidence):
            self.said.add(event.rule)
        if self.writer is not None:
            self.writer.write(event)

    def log(self, *lines: str, level: str = "info") -> None:
        self.emit(Log(lines=list(lines), level=level))

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        """Report metric points of one step; bundled, sent at the latest with the next event.

        NaN and infinities travel as the words the contract names, so they are seen.
        """
        self._pending.append((step, {name: _wire(value) for name, value in values.items()}))
        self._flush_when_due()

    def progress(
        self,
        step: int,
        total: int | None,
        phase: str = "",
        eta_s: float | None = None,
    ) -> None:
        """Report where the run is: about twice a second, and always for the last step."""
        now = self.clock()
        if step != total and now - self._progress_at < PROGRESS_INTERVAL_S:
            return
        self._progress_at = now
        self.emit(Progress(step=step, total_steps=total, phase=phase, eta_s=eta_s))

    def phase(self, words: str) -> None:
        """Say what is done before the first step; once a step is told, that says enough."""
        if self._progress_at == -math.inf and words != self._phase:
            self._phase = words
            step = self.spec.resume.step if self.spec.resume else 0
            self.emit(Progress(step=step, phase=words))

    def flush(self) -> None:
        """Send buffered metrics: one event per set of names, so that no point is invented."""
        pending, self._pending = self._pending, []
        self._flushed_at = self.clock()
        groups: dict[tuple[str, ...], list[tuple[int, dict[str, float | str | None]]]] = {}
        for step, values in pending:
            groups.setdefault(tuple(values), []).append((step, values))
        for names, points in groups.items():
            if self.writer is not None and names:
                self.writer.write(
                    Metrics(
                        steps=[step for step, _ in points],
                        values={name: [values[name] for _, values in points] for name in names},
                    )
                )

    def _flush_when_due(self) -> None:
        if self.clock() - self._flushed_at >= METRICS_FLUSH_S:
            self.flush()

    # --- commands of the people who watch ---

    def should_stop(self) -> str | None:
        """None, "stop" or "cancel", the same on every rank. Call it every step; a command once seen
        is not taken back, except that "cancel" overrides "stop"."""
        if self._pending:
            self._flush_when_due()
        if self.stopped != "cancel":
            self.stopped = self.stop_signal() or self.stopped
        self.stopped = _COMMANDS[ranks.highest(_COMMANDS.index(self.stopped))]
        return self.stopped

    # --- inputs ---

    def has_input(self, role: str) -> bool:
        return self.spec.input(role) is not None

    def input_path(self, role: str) -> Path:
        """The verified local folder of the input `role`; `RecipeError` when absent or damaged."""
        ref = self._input(role)
        self.phase(f"fetching the input {role}")
        folder = self._tree(ref.uri, ref.sha256, f"input '{role}'", with_state=False)
        if ref.kind == "snapshot":
            self._datasets.setdefault(folder, role)
        return folder

    def split_read(self, folder: Path, split: str, items: int) -> None:
        """A file of a dataset was read (`workers.data.snapshot.observe`): reported the first time,
        where it is one of this run's inputs."""
        role = self._datasets.get(folder)
        if role is not None and (role, split) not in self._read:
            self._read.add((role, split))
            self.emit(SplitRead(role, split, items))

    def input_file(self, role: str) -> Path:
        """The verified local copy of the single file that is the input `role`; `RecipeError` when
        absent, damaged, or no single file."""
        ref = self._input(role)
        if ref.kind != "artifact":
            raise RecipeError(
                "wrong_input", Fault.CONFIGURATION, f"input '{role}' must be a file of a run"
            )
        try:
            return self.store.get_file(ref.uri, sha256=ref.sha256, cache=cache_folder())
        except StoreUnreachable:
            raise
        except ArtifactError as error:
            raise RecipeError("damaged_input", Fault.DATA, f"input '{role}': {error}") from error

    def _input(self, role: str) -> InputRef:
        ref = self.spec.input(role)
        if ref is None:
            raise RecipeError(
                "missing_input",
                Fault.CONFIGURATION,
                f"a {self.spec.kind} run needs an input with the role '{role}'",
            )
        return ref

    def resume_path(self) -> Path | None:
        """The verified local folder of the checkpoint to continue from, or None."""
        resume = self.spec.resume
        if resume is None:
            return None
        return self._tree(resume.uri, resume.sha256, f"checkpoint of step {resume.step}")

    def _tree(self, uri: str, sha256: str, what: str, *, with_state: bool = True) -> Path:
        try:
            return patiently(
                lambda: self.store.get_tree(
                    uri, sha256=sha256, cache=cache_folder(), with_state=with_state
                )
            )
        except StoreUnreachable:
            raise
        except ArtifactError as error:
            raise RecipeError("damaged_input", Fault.DATA, f"{what}: {error}") from error

    # --- outputs ---

    def save_checkpoint(
        self, folder: Path, *, step: int, tags: list[str], metrics: Mapping[str, float]
    ) -> None:
        """Store the local `folder` as the checkpoint of `step` and say so.

        Tags are of best, last, failed, final. A tag belongs to its newest holder; a checkpoint
        that holds none any more, and is not among the newest two, is deleted from the store. A
        failed one of a step that is already stored gets a place of its own beside it.
        """
        if self.writer is None:
            return
        beside = "failed" in tags and step in self._saved
        uri = f"{self.spec.folder}/checkpoints/step-{step}" + ("-failed" if beside else "")
        sha256, size = patiently(lambda: self.store.put_tree(folder, uri))
        self.emit(
            CheckpointSaved(
                step=step,
                uri=uri,
                sha256=sha256,
                size_bytes=size,
                tags=list(tags),
                metrics={k: float(v) for k, v in metrics.items() if math.isfinite(v)},
            )
        )
        if not beside:
            self._saved[step] = sorted(set(self._saved.get(step, ())) | set(tags))
            self._prune(step, tags)

    def _prune(self, newest: int, tags: list[str]) -> None:
        for step, held in self._saved.items():
            if step != newest:
                self._saved[step] = [tag for tag in held if tag not in tags or tag == "failed"]
        recent = sorted(self._saved)[-KEPT_CHECKPOINTS:]
        for step in [s for s, held in self._saved.items() if not held and s not in recent]:
            tree = f"{self.spec.folder}/checkpoints/step-{step}"
            patiently(partial(self.store.delete_tree, tree))
            del self._saved[step]

    def save_artifact(
        self,
        path: Path,
        *,
        name: str | None = None,
        place: str = "",
        media_type: str = "application/octet-stream",
    ) -> str:
        """Store a local file beside the checkpoints and say so; returns its path in the store. A
        file that is saved again needs another `place`, or the one before loses its content."""
        name = name or path.name
        uri = "/".join(filter(None, (self.spec.folder, "artifacts", place, name)))
        if self.writer is not None:
            sha256 = patiently(lambda: self.store.put_file(path, uri))
            self.emit(ArtifactSaved(name, uri, sha256, path.stat().st_size, media_type))
        return uri

    def forget_artifact(self, uri: str) -> None:
        """Delete a file that a newer one of its name has taken the place of."""
        if self.writer is not None:
            self.store.delete_tree(uri)


def _wire(value: float | None) -> float | str | None:
    """A number as the contract sends it: NaN and infinities as words."""
    if value is None or math.isfinite(value):
        return None if value is None else float(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
