"""How long a run would take and how much memory, by what finished runs like it took.

Nothing is assumed of a machine: without a finished run of the same kind on the same machine class,
with a model of the same size and alike settings, there is no estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from apps.accounts.models import Project
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from apps.training.selectors.results import report_read
from apps.training.selectors.runs import checkpoint_for_use
from workers.config import SettingsError, as_trained, settings_for
from workers.contract.jobs import ONE

MOST_RUNS = 5  # the newest that fit; the median of these counts
_LOOKED_AT = 60
_STARTS = ("policy", "sft", "base", "model")  # roles of the model that is trained or asked
_ROWS = ("data", "prompts")
# What must be alike: each changes the time of a step or of an answer otherwise than in proportion.
_ALIKE = (
    "base_model",
    "model",
    "lora_rank",
    "precision",
    "frozen_weights",
    "base_4bit",
    "optimizer",
    "attention",
    "liger",
    "packing",
    "reward_precision",
    "gradient_checkpointing",
    "max_length",
    "max_prompt_length",
    "max_new_tokens",
    "max_tokens_per_batch",
    "group_size",
    "update_epochs",
    "minimal",
    "step_seconds",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """`seconds` of wall time of one run, the median over `runs`; `least` and `greatest` over the
    same. `memory_bytes` is the peak by the memory ledger of the first of them, None where its
    preflight wrote none. All None where no finished run is like it."""

    seconds: float | None = None
    least: float | None = None
    greatest: float | None = None
    memory_bytes: int | None = None
    runs: tuple[Run, ...] = ()
    own: bool = True  # runs of this project, not of others of the site
    scaled_by: str = ""  # "steps", "rows" or "" for runs as long as this one
    limited: bool = False  # by its max_seconds


@dataclass(frozen=True, slots=True)
class _Work:
    """What a run does: `rows` is steps × batch size, or prompts; None where it cannot be told."""

    alike: tuple[object, ...]
    batch: int | None
    rows: float | None
    model: int | None  # bytes of the model it starts from


def run_estimate(
    *,
    project: Project,
    kind: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Any],
    queue: str,
    layout: str = ONE,
    processes: int = 1,
) -> Estimate:
    """Of one run as `run_launch` takes it. Runs of the project go first, then those of the site.
    Raises `SettingsError` for a configuration that no run can have."""
    settings = settings_for(kind, config)
    wanted = _work(kind, settings, inputs)
    finished = (
        Run.objects.filter(kind=kind, state=Run.State.FINISHED, about=None, attempt=1)
        .filter(queue=queue, layout=layout, processes=processes)
        .filter(started_at__isnull=False)
    )
    for own, rows in (
        (True, finished.filter(project=project)),
        (False, finished.exclude(project=project)),
    ):
        past = list(rows.order_by("-ended_at")[:_LOOKED_AT])
        found = _like(wanted, past, _works_of(past))
        if found:
            return _of(found, wanted, own=own, longest=getattr(settings, "max_seconds", None))
    return Estimate()


def _like(
    wanted: _Work, runs: list[Run], works: Mapping[str, _Work]
) -> list[tuple[Run, float, bool]]:
    """Of the newest runs like it: (run, seconds that the wanted work would take, same batch)."""
    found = []
    for run in runs:
        work, seconds = works.get(run.pk), run.seconds
        if work is None or seconds is None or not _alike(wanted, work):
            continue
        if wanted.rows == work.rows:
            share = 1.0
        elif wanted.rows and work.rows:
            share = wanted.rows / work.rows
        else:
            continue
        whole = run.total_steps / run.step if run.total_steps and run.step else 1.0  # cut short
        found.append((run, seconds * share * whole, wanted.batch == work.batch))
    return sorted(found, key=lambda one: not one[2])[:MOST_RUNS]


def _alike(one: _Work, other: _Work) -> bool:
    """A model's size that one of them does not know is no difference."""
    if one.alike != other.alike:
        return False
    if not one.model or not other.model:
        return True
    return 0.9 < one.model / other.model < 1.1


def _of(
    found: list[tuple[Run, float, bool]], wanted: _Work, *, own: bool, longest: float | None
) -> Estimate:
    seconds = [length for _, length, _ in found]
    runs = tuple(run for run, _, _ in found)
    whole = [run.step for run in runs if run.total_steps and run.step < run.total_steps]
    same = all(abs(length - (run.seconds or 0)) < 1e-6 for run, length, _ in found) and not whole
    limit = longest if isinstance(longest, int | float) and longest < median(seconds) else None
    return Estimate(
        seconds=limit if limit is not None else median(seconds),
        least=min(seconds),
        greatest=max(seconds),
        memory_bytes=_memory(runs[0]),
        runs=runs,
        own=own,
        scaled_by="" if same else "steps" if all(batch for *_, batch in found) else "rows",
        limited=limit is not None,
    )


def _memory(run: Run) -> int | None:
    """The peak of the ledger that its preflight wrote."""
    if not Artifact.objects.filter(run=run, name="preflight.json").exists():
        return None
    ledger = report_read(run, "preflight.json").data.get("memory")
    peak = ledger.get("peak_bytes") if isinstance(ledger, Mapping) else None
    return peak if isinstance(peak, int) and peak > 0 else None


def _works_of(runs: list[Run]) -> dict[str, _Work]:
    inputs: dict[str, dict[str, Any]] = {run.pk: {} for run in runs}
    for row in RunInput.objects.filter(run__in=runs).select_related("snapshot", "checkpoint"):
        inputs[row.run_id][row.role] = row.snapshot or row.checkpoint
    found = {}
    for run in runs:
        try:
            settings = settings_for(run.kind, as_trained(run.kind, run.config))
        except SettingsError:  # of another version
            continue
        found[run.pk] = _work(run.kind, settings, inputs[run.pk])
    return found


def _work(kind: str, settings: Any, inputs: Mapping[str, Any]) -> _Work:
    data = next((inputs[role] for role in _ROWS if inputs.get(role) is not None), None)
    start = next((inputs[role] for role in _STARTS if inputs.get(role) is not None), None)
    if isinstance(start, Run):
        start = checkpoint_for_use(start)
    batch = getattr(settings, "batch_size", None)
    return _Work(
        alike=(kind, *(getattr(settings, name, None) for name in _ALIKE)),
        batch=batch,
        rows=_rows(settings, batch, _counted(data)),
        model=start.size_bytes or None if isinstance(start, Checkpoint) else None,
    )


def _counted(data: Any) -> int | None:
    """Rows that are trained on or asked."""
    if not isinstance(data, Snapshot):
        return None
    rows = data.counts.get("rows") or {}
    count = rows.get("train") or sum(n for n in rows.values() if isinstance(n, int))
    return count or None


def _rows(settings: Any, batch: int | None, rows: int | None) -> float | None:
    steps = getattr(settings, "steps", None)
    if steps is not None:
        return float(steps * (batch or 1))
    if (epochs := getattr(settings, "epochs", None)) is not None and batch:
        most = getattr(settings, "max_steps", None)
        planned = None if rows is None else max(1, ceil(rows * epochs / batch))
        counted = [one for one in (most, planned) if one is not None]
        return float(min(counted) * batch) if counted else None
    asked = getattr(settings, "max_prompts", None) or getattr(settings, "max_pairs", None)
    return None if asked is None else float(min(asked, rows or asked))
