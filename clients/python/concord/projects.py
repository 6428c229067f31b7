"""What a project holds, grouped: comparisons, datasets, runs, models."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from concord import types
from concord.errors import RunFailed
from concord.progress import bytes_bar, making_bar, steps_bar
from concord.rows import Source, extra, write_rows

if TYPE_CHECKING:
    import pandas

    from concord.aio import AsyncClient
    from concord.transport import Progress

T = TypeVar("T")


class Caller(Protocol):
    """What runs a coroutine of `AsyncClient` to its end; `Client` is one."""

    bars: bool

    @property
    def client(self) -> AsyncClient: ...

    def do(self, work: Coroutine[Any, Any, T]) -> T: ...


class Group:
    """Operations of one project."""

    def __init__(self, caller: Caller, slug: str) -> None:
        self._caller, self._slug = caller, slug
        self._client, self._do = caller.client, caller.do


class Project:
    """A project by its slug: `concord.project("arguments")`. Nothing is asked of the server yet."""

    def __init__(self, caller: Caller, slug: str) -> None:
        self.slug = slug
        self.comparisons = Comparisons(caller, slug)
        self.datasets = Datasets(caller, slug)
        self.runs = Runs(caller, slug)
        self.models = Models(caller, slug)
        self.stages = Stages(caller, slug)
        self.head_to_heads = HeadToHeads(caller, slug)
        self.dialogues = Dialogues(caller, slug)
        self.judges = Judges(caller, slug)
        self.writing = Writing(caller, slug)

    def __repr__(self) -> str:
        return f"<Project {self.slug}>"


class Comparisons(Group):
    """Comparisons to vote on, and past votes, from files."""

    def import_file(
        self,
        file: str | Path,
        *,
        settings: Mapping[str, Any] | None = None,
        on_error: str = "refuse",
        timeout: float | None = None,
        on_progress: Progress | None = None,
    ) -> types.Import:
        """Check a whole file, bring it in and wait for the end; see `AsyncClient.import_file`. What
        it did is in `result`. Rows at hand are imported by `Client.import_comparisons`."""
        with bytes_bar(Path(file).name, self._caller.bars, on_progress) as told:
            return self._do(
                self._client.import_file(
                    self._slug,
                    file,
                    settings=settings,
                    on_error=on_error,
                    timeout=timeout,
                    on_progress=told,
                )
            )

    def image_upload(self, file: str | Path) -> types.Image:
        """See `AsyncClient.image_upload`."""
        return self._do(self._client.image_upload(self._slug, file))

    def image_delete(self, sha256: str) -> None:
        """See `AsyncClient.image_delete`."""
        self._do(self._client.image_delete(self._slug, sha256))

    def images(self, *, limit: int = 100, offset: int = 0) -> Sequence[types.Image]:
        """The images of the project, newest first."""
        return self._do(self._client.images(self._slug, limit=limit, offset=offset))

    def trajectories_export(self, file: str | Path, *, format: str = "atif") -> Path:
        """See `AsyncClient.trajectories_export`."""
        return self._do(self._client.trajectories_export(self._slug, file, format=format))

    def steps_export(self, file: str | Path) -> Path:
        """The runs whose first wrong step people told, as JSON Lines of steps."""
        return self._do(self._client.steps_export(self._slug, file))

    def alarms(self) -> types.Alarms:
        """See `AsyncClient.alarms`."""
        return self._do(self._client.alarms(self._slug))

    def alarms_set(self, changes: Mapping[str, Mapping[str, Any] | None]) -> types.Alarms:
        """See `AsyncClient.alarms_set`."""
        return self._do(self._client.alarms_set(self._slug, changes))


class Datasets(Group):
    """Frozen rows that runs read."""

    def list(self) -> tuple[types.Dataset, ...]:
        """Every dataset, newest first."""
        return self._do(self._client.datasets(self._slug))

    def get(self, dataset: str) -> types.DatasetDetail:
        """One by its id, with its files."""
        return self._do(self._client.dataset(self._slug, dataset))

    def advice(self, **stated: Any) -> types.Advice:
        """See `AsyncClient.advice`."""
        return self._do(self._client.advice(self._slug, **stated))

    def selection_replays(self, *, kind: str = "") -> Sequence[types.SelectionReplay]:
        """See `AsyncClient.selection_replays`."""
        return self._do(self._client.selection_replays(self._slug, kind=kind))

    def selection_replay_start(
        self, *, kind: str = "selection", most_per_prompt: int | None = None
    ) -> types.SelectionReplay:
        """See `AsyncClient.selection_replay_start`."""
        return self._do(
            self._client.selection_replay_start(
                self._slug, kind=kind, most_per_prompt=most_per_prompt
            )
        )

    def label_budget(self, **stated: Any) -> types.LabelBudget:
        """See `AsyncClient.label_budget`."""
        return self._do(self._client.label_budget(self._slug, **stated))

    def looks(self, dataset: str, *, limit: int = 100) -> types.Looks:
        """See `AsyncClient.dataset_looks`."""
        return self._do(self._client.dataset_looks(self._slug, dataset, limit=limit))

    def look_sign(
        self, dataset: str, split: str, *, look: int, person: str, reason: str
    ) -> types.SignOff:
        """See `AsyncClient.look_sign`."""
        return self._do(
            self._client.look_sign(
                self._slug, dataset, split, look=look, person=person, reason=reason
            )
        )

    def look_budget(
        self, dataset: str, split: str, looks: int | None
    ) -> tuple[types.SplitLooks, ...]:
        """See `AsyncClient.look_budget`."""
        return self._do(self._client.look_budget(self._slug, dataset, split, looks))

    def import_file(
        self,
        file: str | Path,
        name: str = "",
        *,
        makes: str = "preferences",
        settings: Mapping[str, Any] | None = None,
        on_error: str = "refuse",
        overlap: str = "refuse",
        timeout: float | None = None,
        on_progress: Progress | None = None,
    ) -> types.DatasetDetail:
        """A dataset of the rows of a file; see `AsyncClient.import_file`.

        makes: preferences, demonstrations, prompts or unpaired. name: the file's where none is
        given. settings: mapping, layout, half … where the file is to be read otherwise than it is
        recognised.
        """
        if makes == "comparisons":
            raise ValueError("makes: comparisons are imported by `comparisons.import_file`")
        with bytes_bar(Path(file).name, self._caller.bars, on_progress) as told:
            done = self._do(
                self._client.import_file(
                    self._slug,
                    file,
                    makes=makes,
                    name=name,
                    settings=settings,
                    on_error=on_error,
                    overlap=overlap,
                    timeout=timeout,
                    on_progress=told,
                )
            )
        return self.get(done.result["snapshot"])

    def from_hf(
        self,
        source: Source,
        name: str,
        *,
        splits: Mapping[str, str] | None = None,
        **options: Any,
    ) -> types.DatasetDetail:
        """A dataset of the rows of a `datasets.Dataset`, a `DatasetDict`, or any iterable of dicts.

        source: a text is given to `datasets.load_dataset`, on this machine (extra `concord[hf]`).
        splits: of a `DatasetDict`, which to take and what they are called here, as {"train_prefs":
        "train", "test_prefs": "dev"}; where there is none, or only train, the server splits by
        prompt. options: makes and the others of `import_file`.
        """
        with tempfile.TemporaryDirectory(prefix="concord-") as folder:
            file = Path(folder) / (re.sub(r"[^\w.-]+", "-", name).strip("-") + ".jsonl")
            write_rows(source, file, splits=splits)
            return self.import_file(file, name, **options)

    def freeze(
        self,
        name: str,
        *,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
        **options: Any,
    ) -> types.Dataset:
        """Freeze the decided pairs and wait for it; see `AsyncClient.freeze`."""
        with making_bar(self._caller.bars, on_progress) as told:
            return self._do(self._client.freeze(self._slug, name, on_progress=told, **options))

    def mix(
        self,
        name: str,
        parts: Mapping[types.Dataset | str, float],
        *,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
        **options: Any,
    ) -> types.Dataset:
        """One dataset of several; see `AsyncClient.mix`."""
        named = {one if isinstance(one, str) else one.id: weight for one, weight in parts.items()}
        with making_bar(self._caller.bars, on_progress) as told:
            return self._do(self._client.mix(self._slug, name, named, on_progress=told, **options))

    def wait(
        self,
        dataset: types.Dataset | str,
        *,
        on_progress: Callable[[types.DatasetDetail], None] | None = None,
        **options: Any,
    ) -> types.DatasetDetail:
        """Until a dataset is frozen; see `AsyncClient.dataset_wait`."""
        found = dataset.id if isinstance(dataset, types.Dataset) else dataset
        with making_bar(self._caller.bars, on_progress) as told:
            return self._do(
                self._client.dataset_wait(self._slug, found, on_progress=told, **options)
            )

    def export(self, dataset: types.Dataset | str, file: str | Path, **options: Any) -> Path:
        """Write a split to a file; see `AsyncClient.dataset_export`."""
        found = dataset.id if isinstance(dataset, types.Dataset) else dataset
        return self._do(self._client.dataset_export(self._slug, found, file, **options))


class Run(Group):
    """A run as it was last looked at (`record`), and what can be done with it."""

    def __init__(self, caller: Caller, slug: str, record: types.Run) -> None:
        super().__init__(caller, slug)
        self.record = record

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.record.kind} '{self.record.name}' {self.state}>"

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> str:
        """As of the last look: waiting, queued, running, stopping, finished, failed, cancelled."""
        return self.record.state

    @property
    def summary(self) -> Mapping[str, Any]:
        """What it reported at its end, as of the last look."""
        return self.record.summary

    def refresh(self) -> types.RunDetail:
        """Look again; the record, with its checkpoints."""
        self.record = found = self._do(self._client.run(self._slug, self.id))
        return found

    def wait(
        self,
        *,
        every: float = 5.0,
        timeout: float | None = None,
        check: bool = True,
        on_progress: Callable[[types.RunDetail], None] | None = None,
    ) -> Run:
        """This run once it has ended. every: seconds between two looks, after each of which
        on_progress is called.

        Raises `RunFailed` where it failed or was cancelled, unless check is False, and
        `TimeoutError` after `timeout` seconds; the run goes on. Ctrl-C ends the waiting alone.
        """
        with steps_bar(self._caller.bars, on_progress) as told:
            self.record = self._do(
                self._client.wait(
                    self._slug, self.id, every=every, timeout=timeout, on_progress=told
                )
            )
        if check and self.state != "finished":
            raise RunFailed(self.record)
        return self

    def curves(self, *names: str, points: int = 2000, cursor: str = "") -> types.Metrics:
        """Its metrics, or those of `names`, as they were sent."""
        return self._do(
            self._client.metrics(self._slug, self.id, *names, points=points, cursor=cursor)
        )

    def metrics(self, *names: str, points: int = 2000) -> pandas.DataFrame:
        """The same as a DataFrame: a row a step, a column a metric. Needs the extra
        `concord[data]`."""
        frames = extra("pandas", "data", "use `curves(…).rows()`.")
        rows = self.curves(*names, points=points).rows()
        return frames.DataFrame(rows, columns=None if rows else ["step"]).set_index("step")

    def samples(self, *, bucket: str = "", limit: int = 50) -> tuple[types.Sample, ...]:
        """Answers that it kept, latest step first. bucket: high, low, random or flagged."""
        return self._do(self._client.samples(self._slug, self.id, bucket=bucket, limit=limit))

    def log(self, *, lines: int = 200) -> tuple[types.LogLine, ...]:
        """The last lines of its log."""
        return self._do(self._client.log(self._slug, self.id, lines=lines))

    def model(self, tag: str = "final") -> types.RunCheckpoint:
        """The checkpoint with this tag (final, best, last); looks again."""
        found = self.refresh().checkpoints
        for one in found:
            if tag in one.tags:
                return one
        there = sorted({name for one in found for name in one.tags})
        raise LookupError(f"tag: the run {self.id} has no checkpoint '{tag}', but {there}")

    def change(self, **changes: Any) -> Run:
        """Give it another `name`, `note` or `tags`, or archive it (`archived=True`)."""
        self.record = self._do(self._client.change(self._slug, self.id, **changes))
        return self

    def stop(self) -> Run:
        """Save a checkpoint and finish early."""
        self.record = self._do(self._client.stop(self._slug, self.id))
        return self

    def cancel(self) -> Run:
        """End without saving."""
        self.record = self._do(self._client.cancel(self._slug, self.id))
        return self

    def resume(self) -> Run:
        """Go on from the last checkpoint of a run that failed or was cancelled."""
        self.record = self._do(self._client.resume(self._slug, self.id))
        return self

    def pairs_select(self, *, pairs: int, **plan: Any) -> types.PairsSelected:
        """Put only some of its generated pairs to people; see `AsyncClient.pairs_select`."""
        return self._do(self._client.pairs_select(self._slug, self.id, pairs=pairs, **plan))

    def freeze_revisions(self, **how: Any) -> types.Dataset:
        """Freeze its rewritten answers as preference pairs; see `AsyncClient.freeze_revisions`."""
        return self._do(self._client.freeze_revisions(self._slug, self.id, **how))

    def remove_intermediates(self) -> types.Intermediates:
        """Remove its intermediate checkpoints and trainer state, for good; once it has ended."""
        return self._do(self._client.remove_intermediates(self._slug, self.id))


# What a run reads: a dataset, a model, the final model of a run, or "snapshot:ID" and so on.
Input = types.Dataset | types.Model | types.RunCheckpoint | types.Run | Run | str


def reference(given: Input) -> str:
    """How the API names an input."""
    if isinstance(given, str):
        return given
    if isinstance(given, types.Dataset):
        return f"snapshot:{given.id}"
    if isinstance(given, types.Run | Run):
        return f"run:{given.id}"
    return f"checkpoint:{given.id}"


class Runs(Group):
    """Trainings, evaluations and what else workers do."""

    def list(self, **filters: Any) -> Iterator[Run]:
        """Every run, newest first. filters: search, kind, state, group."""

        async def every() -> Sequence[types.Run]:
            return [row async for row in self._client.runs(self._slug, **filters)]

        return (Run(self._caller, self._slug, row) for row in self._do(every()))

    def get(self, run: str) -> Run:
        """One by its id."""
        return Run(self._caller, self._slug, self._do(self._client.run(self._slug, run)))

    def launch(
        self,
        kind: str,
        name: str,
        *,
        inputs: Mapping[str, Input] | None = None,
        config: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Run:
        """Start a run; see `AsyncClient.launch`. inputs: by their roles, datasets, models and runs
        as this client returns them, or their references."""
        named = {role: reference(given) for role, given in (inputs or {}).items()}
        started = self._do(
            self._client.launch(self._slug, kind, name, inputs=named, config=config, **more)
        )
        return Run(self._caller, self._slug, started)

    def estimate(
        self,
        kind: str,
        *,
        inputs: Mapping[str, Input] | None = None,
        config: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> types.Estimate:
        """How long `launch` would take and how much memory; see `AsyncClient.estimate`."""
        named = {role: reference(given) for role, given in (inputs or {}).items()}
        return self._do(
            self._client.estimate(self._slug, kind, inputs=named, config=config, **more)
        )

    def protocols(self) -> Iterator[types.Protocol]:
        """What the project's evaluations were measured by, newest first."""

        async def every() -> Sequence[types.Protocol]:
            return [row async for row in self._client.protocols(self._slug)]

        return iter(self._do(every()))

    def protocol(self, sha256: str) -> types.ProtocolDetail:
        """One with the runs that used it; see `AsyncClient.protocol`."""
        return self._do(self._client.protocol(self._slug, sha256))

    def protocol_differences(self, sha256: str, other: str) -> types.ProtocolDifferences:
        """Every line in which two differ; see `AsyncClient.protocol_differences`."""
        return self._do(self._client.protocol_differences(self._slug, sha256, other))

    def prompt_overlap(self, run: str) -> types.PromptOverlap:
        """Prompts that its policy was trained on; see `AsyncClient.prompt_overlap`."""
        return self._do(self._client.prompt_overlap(self._slug, run))

    def outside_results(self, **filters: Any) -> Iterator[types.OutsideResult]:
        """Results that another program measured, newest first. filters: model."""

        async def every() -> Sequence[types.OutsideResult]:
            return [row async for row in self._client.outside_results(self._slug, **filters)]

        return iter(self._do(every()))

    def outside_results_import(self, model: str, file: str | Path) -> Sequence[types.OutsideResult]:
        """Import a file of another program; see `AsyncClient.outside_results_import`."""
        return self._do(self._client.outside_results_import(self._slug, model, file))

    def outside_differences(self, result: str, other: str) -> types.ProtocolDifferences:
        """Every line in which the protocols of two such results differ."""
        return self._do(self._client.outside_differences(self._slug, result, other))

    def outside_result_delete(self, result: str) -> None:
        """Delete one of them."""
        self._do(self._client.outside_result_delete(self._slug, result))

    def automatic_suite(self) -> types.AutomaticSuite:
        """The suite that every policy is evaluated on; see `AsyncClient.automatic_suite`."""
        return self._do(self._client.automatic_suite(self._slug))

    def automatic_suite_set(
        self, *, dataset: str, baseline: str, **asked: Any
    ) -> types.AutomaticSuite:
        """Evaluate every policy on a suite; see `AsyncClient.automatic_suite_set`."""
        named = {"dataset": dataset, "baseline": baseline, **asked}
        return self._do(self._client.automatic_suite_set(self._slug, **named))

    def automatic_suite_stop(self) -> types.AutomaticSuite:
        """Evaluate no further policy by itself."""
        return self._do(self._client.automatic_suite_stop(self._slug))

    def automatic_suite_again(self, run: str) -> types.SuiteLaunch:
        """Launch what was refused after a run."""
        return self._do(self._client.automatic_suite_again(self._slug, run))

    def watches(self) -> tuple[types.Watch, ...]:
        """Monitored models, each with its newest probe."""
        return self._do(self._client.watches(self._slug))

    def watch_make(self, name: str, *, checkpoint: str, prompts: str, **how: Any) -> types.Watch:
        """Monitor a model; see `AsyncClient.watch_make`."""
        named = {"checkpoint": checkpoint, "prompts": prompts, **how}
        return self._do(self._client.watch_make(self._slug, name, **named))

    def traffic_send(
        self, watch: str, conversations: Sequence[Mapping[str, Any]], *, key: str = ""
    ) -> types.TrafficCounts:
        """Send conversations of a monitored model; see `AsyncClient.traffic_send`."""
        return self._do(self._client.traffic_send(self._slug, watch, conversations, key=key))

    def traffic_delete(self, watch: str, ids: Sequence[str]) -> int:
        """Delete conversations whose consent was withdrawn; how many there were."""
        return self._do(self._client.traffic_delete(self._slug, watch, ids))

    def pipelines(self) -> tuple[types.Pipeline, ...]:
        """Pipelines of rounds, newest first."""
        return self._do(self._client.pipelines(self._slug))

    def pipeline(self, pipeline: str) -> types.Pipeline:
        """One pipeline by its id."""
        return self._do(self._client.pipeline(self._slug, pipeline))

    def pipeline_make(self, *, run: str, name: str, **asked: Any) -> types.Pipeline:
        """A pipeline that repeats what led to a run; see `AsyncClient.pipeline_make`."""
        return self._do(self._client.pipeline_make(self._slug, run=run, name=name, **asked))

    def pipeline_from_template(
        self, *, template: str, policy: str, prompts: str, name: str, **asked: Any
    ) -> types.Pipeline:
        """A pipeline for a project that has trained nothing yet; see
        `AsyncClient.pipeline_from_template`."""
        given = {"template": template, "policy": policy, "prompts": prompts, "name": name}
        return self._do(self._client.pipeline_from_template(self._slug, **given, **asked))

    def pipeline_change(self, pipeline: types.Pipeline, **changes: Any) -> types.Pipeline:
        """A new version of a pipeline; see `AsyncClient.pipeline_change`."""
        return self._do(self._client.pipeline_change(self._slug, pipeline, **changes))

    def rounds(self, pipeline: str, *, offset: int = 0, limit: int = 20) -> tuple[types.Round, ...]:
        """Rounds of a pipeline, newest first."""
        return self._do(self._client.rounds(self._slug, pipeline, offset=offset, limit=limit))

    def round(self, pipeline: str, number: int) -> types.Round:
        """One round: what it waits for, its steps, what it measured."""
        return self._do(self._client.round(self._slug, pipeline, number))

    def round_start(self, pipeline: str) -> types.Round:
        """Start a round by the newest version."""
        return self._do(self._client.round_start(self._slug, pipeline))

    def round_act(
        self, pipeline: str, number: int, action: str, *, step: str = "", reason: str = ""
    ) -> types.Round:
        """Pause, resume, stop, skip or redo; see `AsyncClient.round_act`."""
        acted = self._client.round_act(
            self._slug, pipeline, number, action, step=step, reason=reason
        )
        return self._do(acted)

    def constitution(self) -> tuple[types.Constitution, ...]:
        """Versions of its constitution, the newest first."""
        return self._do(self._client.constitution(self._slug))

    def constitution_save(self, principles: Mapping[str, str], **more: Any) -> types.Constitution:
        """The next version of its constitution; see `AsyncClient.constitution_save`."""
        return self._do(self._client.constitution_save(self._slug, principles, **more))

    def space(self, *, measure: bool = False) -> types.Space:
        """What runs and datasets keep in the artifact store; see `AsyncClient.space`."""
        return self._do(self._client.space(self._slug, measure=measure))

    def set_limits(self, **limits: int | None) -> types.Limits:
        """Quotas and retention; see `AsyncClient.set_limits`."""
        return self._do(self._client.set_limits(self._slug, **limits))


@dataclass(frozen=True)
class WinRate:
    """How often the first model's answer scored higher, ties ½; a 95 % interval by prompts.

    by: who scored: judge, or reward where there was no judge. None with why it is `undefined`, or
    why there is no interval. n: prompts answered.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    by: str
    undefined: str
    run: Run


class HeadToHeads(Group):
    """Two systems compared by people."""

    def all(self) -> Sequence[types.HeadToHead]:
        return self._do(self._client.head_to_heads(self._slug))

    def open(
        self,
        name: str,
        *,
        first: str,
        second: str,
        source: Run | str = "",
        rows: Sequence[Mapping[str, Any]] = (),
        **plan: Any,
    ) -> types.HeadToHead:
        """Have people compare the answers of an evaluation, or rows of your own. See
        `AsyncClient.head_to_head_open`."""
        found = source.id if isinstance(source, Run) else source
        return self._do(
            self._client.head_to_head_open(
                self._slug, name, first=first, second=second, source=found, rows=rows, **plan
            )
        )

    def get(self, head_to_head: str) -> types.HeadToHead:
        """What people say so far; a look that is kept."""
        return self._do(self._client.head_to_head(self._slug, head_to_head))

    def end(self, head_to_head: str) -> types.HeadToHead:
        """Ask nobody any more."""
        return self._do(self._client.head_to_head_end(self._slug, head_to_head))

    def link(self, head_to_head: str, days: int | None = 14) -> types.ReadLink:
        """A page that anybody may read for so many days; None ends it."""
        return self._do(self._client.head_to_head_link(self._slug, head_to_head, days))


class Dialogues(Group):
    """People who talk with two blind systems at a time."""

    def all(self) -> Sequence[types.Dialogue]:
        return self._do(self._client.dialogues(self._slug))

    def open(
        self,
        name: str,
        models: Sequence[types.Model | types.RunCheckpoint | Run | str],
        **plan: Any,
    ) -> types.Dialogue:
        """Have people talk with two to eight models, of a run its final one. See
        `AsyncClient.dialogue_open`."""
        named = [one.model() if isinstance(one, Run) else one for one in models]
        ids = [one if isinstance(one, str) else one.id for one in named]
        return self._do(self._client.dialogue_open(self._slug, name, ids, **plan))

    def get(self, dialogue: str) -> types.Dialogue:
        """One with its result so far."""
        return self._do(self._client.dialogue(self._slug, dialogue))

    def close(self, dialogue: str) -> types.Dialogue:
        """Nobody begins or continues a conversation."""
        return self._do(self._client.dialogue_close(self._slug, dialogue))

    def reopen(self, dialogue: str) -> types.Dialogue:
        """Open a closed one again."""
        return self._do(self._client.dialogue_reopen(self._slug, dialogue))

    def download(self, dialogue: str, file: str | Path) -> Path:
        """Every conversation with both branches of each turn, as JSON Lines."""
        return self._do(self._client.dialogue_conversations(self._slug, dialogue, file))


class Judges(Group):
    """Models that say which answer is better, beside people. Nothing they say is a vote."""

    def all(self) -> Sequence[types.Judge]:
        """Those in use, with their newest version."""
        return self._do(self._client.judges(self._slug))

    def get(self, judge: int) -> types.JudgeDetail:
        """One with its versions."""
        return self._do(self._client.judge(self._slug, judge))

    def make(self, name: str, model: types.Model | str, **config: Any) -> types.JudgeDetail:
        """A judge; see `AsyncClient.judge_make`."""
        found = model if isinstance(model, str) else model.id
        return self._do(self._client.judge_make(self._slug, name, found, **config))

    def version_make(self, judge: int, **changes: Any) -> types.JudgeVersion:
        """Its newest version with changes; see `AsyncClient.judge_version_make`."""
        return self._do(self._client.judge_version_make(self._slug, judge, **changes))

    def archive(self, judge: int) -> types.JudgeDetail:
        """It is asked nothing any more."""
        return self._do(self._client.judge_archive(self._slug, judge))

    def measure(self, judge: int, version: int, **how: Any) -> types.JudgeAsked:
        """Have it asked and measured; see `AsyncClient.judge_measure`."""
        return self._do(self._client.judge_measure(self._slug, judge, version, **how))

    def measurements(self, judge: int, version: int) -> Iterator[types.JudgeMeasurement]:
        """What it was found to be worth, newest first."""

        async def every() -> Sequence[types.JudgeMeasurement]:
            rows = self._client.judge_measurements(self._slug, judge, version)
            return [row async for row in rows]

        return iter(self._do(every()))

    def measurement(self, judge: int, version: int, measurement: int) -> types.JudgeMeasurement:
        return self._do(self._client.judge_measurement(self._slug, judge, version, measurement))

    def verdicts(self, judge: int, version: int) -> Iterator[types.JudgeVerdict]:
        """What it said, pair by pair."""

        async def every() -> Sequence[types.JudgeVerdict]:
            rows = self._client.judge_verdicts(self._slug, judge, version)
            return [row async for row in rows]

        return iter(self._do(every()))

    def trial(self, judge: int, version: int, prompts: Sequence[str], **how: Any) -> str:
        """Try prompts; the key of the trial. See `AsyncClient.judge_trial`."""
        return self._do(self._client.judge_trial(self._slug, judge, version, prompts, **how))

    def trials(self, judge: int) -> Sequence[types.JudgeTrial]:
        """Newest first."""
        return self._do(self._client.judge_trials(self._slug, judge))

    def presort(self, judge: int, version: int, **how: Any) -> types.JudgePresorted:
        """Put first what it is least sure of; see `AsyncClient.judge_presort`."""
        return self._do(self._client.judge_presort(self._slug, judge, version, **how))

    def certify(self, judge: int, version: int, **contract: Any) -> types.CertificateDetail:
        """Certify its labels; see `AsyncClient.judge_certify`."""
        return self._do(self._client.judge_certify(self._slug, judge, version, **contract))

    def certificates(self, judge: int | None = None) -> Iterator[types.Certificate]:
        """Newest first, of all judges or of one."""

        async def every() -> Sequence[types.Certificate]:
            return [row async for row in self._client.certificates(self._slug, judge=judge)]

        return iter(self._do(every()))

    def certificate(self, certificate: str) -> types.CertificateDetail:
        """One with its audit and its uses."""
        return self._do(self._client.certificate(self._slug, certificate))

    def label(self, certificate: str, *, scope: str = "project") -> types.CertificateLabelled:
        """Label pairs without a vote under a certificate."""
        return self._do(self._client.certificate_label(self._slug, certificate, scope=scope))

    def freeze(self, certificate: str, name: str = "") -> types.Dataset:
        """Its labels as a dataset."""
        return self._do(self._client.certificate_freeze(self._slug, certificate, name))

    def stop(self, certificate: str, because: str = "") -> types.CertificateDetail:
        """End a certificate, for good."""
        return self._do(self._client.certificate_stop(self._slug, certificate, because))


class Stages(Group):
    """Which policy candidate, staging and production name, and how it came to."""

    def now(self, on: str = "") -> Sequence[types.Naming]:
        """What each names now; on: a day as 2026-11-03, all that was named on it."""
        return self._do(self._client.stages(self._slug, on=on))

    def history(self, **filters: Any) -> Iterator[types.Naming]:
        """Every change, newest first. filters: stage."""

        async def every() -> Sequence[types.Naming]:
            return [row async for row in self._client.stage_history(self._slug, **filters)]

        return iter(self._do(every()))

    def revert(self, stage: str, *, change: int, reason: str) -> types.Naming:
        """It names again what it named before `change`, its newest one."""
        return self._do(self._client.stage_revert(self._slug, stage, change=change, reason=reason))

    def share(self, stage: str, share: int, *, change: int, reason: str) -> types.Naming:
        """Another share of the traffic, in per cent."""
        return self._do(
            self._client.stage_share(self._slug, stage, share, change=change, reason=reason)
        )

    def evidence(self, model: types.Model | str, stage: str = "production") -> types.Gate:
        """What speaks for promoting a policy, now."""
        found = model if isinstance(model, str) else model.id
        return self._do(self._client.evidence(self._slug, found, stage=stage))

    def promotions(self, **filters: Any) -> Iterator[types.Promotion]:
        """Requests to promote, newest first. filters: state."""

        async def every() -> Sequence[types.Promotion]:
            return [row async for row in self._client.promotions(self._slug, **filters)]

        return iter(self._do(every()))

    def promotion(self, promotion: str) -> types.PromotionDetail:
        """One request with its evidence as it was kept."""
        return self._do(self._client.promotion(self._slug, promotion))

    def request(
        self, model: types.Model | str, stage: str, *, share: int = 100, reason: str = ""
    ) -> types.PromotionDetail:
        """Ask that a stage names a model; another person decides."""
        found = model if isinstance(model, str) else model.id
        return self._do(
            self._client.promotion_request(self._slug, found, stage, share=share, reason=reason)
        )

    def decide(
        self, promotion: str, decision: str, *, change: int = 0, reason: str = ""
    ) -> types.PromotionDetail:
        """approve, reject, override or withdraw. See `AsyncClient.promotion_decide`."""
        return self._do(
            self._client.promotion_decide(
                self._slug, promotion, decision, change=change, reason=reason
            )
        )

    def checklists(self, run: Run | str) -> Sequence[types.Checklist]:
        """Before, during and after a run that trains a policy."""
        found = run if isinstance(run, str) else run.id
        return self._do(self._client.checklists(self._slug, found))


class Models(Group):
    """Checkpoints of runs, and registered models."""

    def list(self, **filters: Any) -> Iterator[types.Model]:
        """Every model, newest first. filters: search, kind (of its run), status."""

        async def every() -> Sequence[types.Model]:
            return [row async for row in self._client.models(self._slug, **filters)]

        return iter(self._do(every()))

    def get(self, model: str) -> types.ModelDetail:
        """One by its id, with its card and the lines that load it."""
        return self._do(self._client.model(self._slug, model))

    def download(
        self,
        model: types.Model | types.RunCheckpoint | Run | str,
        folder: str | Path,
        *,
        part: str = "merged",
        on_progress: Progress | None = None,
    ) -> Path:
        """The model's files, in a folder of their own below `folder`; of a run, its final model.
        See `AsyncClient.model_download`."""
        named = model.model() if isinstance(model, Run) else model
        found = named if isinstance(named, str) else named.id
        with bytes_bar(found, self._caller.bars, on_progress) as told:
            return self._do(
                self._client.model_download(self._slug, found, folder, part=part, on_progress=told)
            )

    def copy(self, model: types.Model | str, project: str, *, name: str = "") -> Run:
        """Copy it into another project, by slug, that one administers as this one: a run there,
        which `wait` waits for and whose `model()` is the copy."""
        found = model if isinstance(model, str) else model.id
        row = self._do(self._client.model_copy(self._slug, found, project, name=name))
        return Run(self._caller, project, row)

    def ask(
        self,
        models: Sequence[types.Model | types.RunCheckpoint | Run | str],
        messages: str | Sequence[Mapping[str, str]],
        **options: Any,
    ) -> types.Question:
        """What one or two models answer, of a run its final model. See `AsyncClient.ask`."""
        named = [one.model() if isinstance(one, Run) else one for one in models]
        ids = [one if isinstance(one, str) else one.id for one in named]
        return self._do(self._client.ask(self._slug, ids, messages, **options))

    def try_reward(
        self,
        reward: Mapping[str, Any],
        answers: Sequence[Mapping[str, str]] = (),
        *,
        model: Input | None = None,
        prompts: Input | None = None,
        every: float = 1.0,
        timeout: float | None = 300.0,
    ) -> Sequence[Mapping[str, Any]]:
        """What a reward says of a few answers before anything is trained on it, as rows of prompt,
        response, answer, score, parts, disagreement and notes.

        reward: as a run's setting, {"type": …}; model: what {"type": "model"} in it asks. answers:
        20 at most, each {"prompt": …, "response": …} and for verifiers what is right as "answer";
        without any, five of the dataset `prompts`. Raises `RunFailed` where it cannot score them.
        """
        given = {"reward": model, "prompts": prompts}
        run = Runs(self._caller, self._slug).launch(
            "check",
            "Reward tried on answers",
            inputs={role: one for role, one in given.items() if one is not None},
            config={
                "check": "answers",
                "reward": dict(reward),
                "answers": [dict(one) for one in answers],
            },
        )
        rows: Sequence[Mapping[str, Any]] = run.wait(every=every, timeout=timeout).summary[
            "figures"
        ]["rows"]
        return rows

    def compare(
        self,
        a: Input,
        b: Input,
        prompts: Input,
        *,
        reward: Input | Mapping[str, Any],
        judge: Input | None = None,
        name: str = "",
        config: Mapping[str, Any] | None = None,
        every: float = 5.0,
        timeout: float | None = None,
        **more: Any,
    ) -> WinRate:
        """How often `a` answers better than `b` on the held-out prompts of a dataset.

        An `evaluate` run, waited for: a is its `policy`, b its `sft`. reward: a reward model, or a
        rule as {"type": …}; judge: a reward model that neither was trained against, which then
        says who won. config: max_prompts, max_new_tokens, temperature … more: as `launch`. All the
        run reported is in `run.summary`.
        """
        inputs = {"policy": a, "sft": b, "prompts": prompts}
        settings = dict(config or {})
        if isinstance(reward, Mapping):
            settings["reward"] = dict(reward)
        else:
            inputs["reward"] = reward
        if judge is not None:
            inputs["judge"] = judge
        runs = Runs(self._caller, self._slug)
        run = runs.launch(
            "evaluate", name or "compare two models", inputs=inputs, config=settings, **more
        ).wait(every=every, timeout=timeout)
        by = "judge" if judge is not None else "reward"
        found = run.summary[by]["win_rate"]
        return WinRate(
            value=found["value"],
            low=found["low"],
            high=found["high"],
            n=found["n"],
            by=by,
            undefined=found.get("undefined") or found.get("no_interval") or "",
            run=run,
        )


class Writing(Group):
    """Texts that people write: answers to prompts, and prompts."""

    def list(self) -> tuple[types.WritingBatch, ...]:
        """See `AsyncClient.writing_list`."""
        return self._do(self._client.writing_list(self._slug))

    def get(self, batch: str) -> types.WritingBatch:
        """See `AsyncClient.writing_get`."""
        return self._do(self._client.writing_get(self._slug, batch))

    def create(self, name: str, **asked: Any) -> types.WritingBatch:
        """See `AsyncClient.writing_create`."""
        return self._do(self._client.writing_create(self._slug, name, **asked))

    def open(self, batch: str, *, is_open: bool = True) -> types.WritingBatch:
        """See `AsyncClient.writing_open`."""
        return self._do(self._client.writing_open(self._slug, batch, is_open=is_open))

    def texts_page(self, *, after: int = 0, limit: int = 200, **filters: str) -> types.WrittenPage:
        """See `AsyncClient.writing_texts_page`."""
        return self._do(
            self._client.writing_texts_page(self._slug, after=after, limit=limit, **filters)
        )

    def next(self) -> types.WritingNext:
        """See `AsyncClient.writing_next`."""
        return self._do(self._client.writing_next(self._slug))

    def draft(
        self, text: int, body: str, *, number: int = 0, editor: str = ""
    ) -> types.WritingDraft:
        """See `AsyncClient.writing_draft`."""
        return self._do(
            self._client.writing_draft(self._slug, text, body, number=number, editor=editor)
        )

    def submit(
        self, text: types.TextToWrite, body: str, *, confirm_personal: bool = False
    ) -> types.WrittenVersion:
        """See `AsyncClient.writing_submit`."""
        return self._do(
            self._client.writing_submit(self._slug, text, body, confirm_personal=confirm_personal)
        )

    def skip(self, text: int, reason: str = "") -> None:
        """See `AsyncClient.writing_skip`."""
        self._do(self._client.writing_skip(self._slug, text, reason))

    def review(
        self, text: types.WrittenText, verdict: str, *, body: str = "", reason: str = ""
    ) -> types.WrittenText:
        """See `AsyncClient.writing_review`."""
        return self._do(
            self._client.writing_review(self._slug, text, verdict, body=body, reason=reason)
        )
