"""Healthy runs that a run can be compared with, step by step."""

from dataclasses import dataclass

from apps.training.models import Alert, Checkpoint, Run, RunInput
from apps.training.selectors.metrics import metric_series
from apps.training.selectors.runs import attempt_ends, checkpoint_for_use, checkpoints
from workers.config import recipe_config
from workers.rules.choices import compared_metrics
from workers.rules.diagnosis import Baseline

COMPARED_KINDS = ("ppo", "grpo")
MOST_RUNS = 12
_MOST_RUNS = 60
_POINTS = 2000
# What must be alike for two runs' figures to be comparable: where they start, what they answer and
# what rewards them, and how much they draw. Step sizes and KL penalties are what is being judged.
_INPUTS = ("sft", "policy", "reference", "reward", "prompts")
_SETTINGS = (
    "batch_size",
    "max_new_tokens",
    "temperature",
    "lora_rank",
    "critic",
    "group_size",
    "steps",
    "minimal",  # a longer run warms up for longer and slows down later
)


def healthy_like(run: Run) -> list[Run]:
    """Finished runs of the project that differ from `run` in seed, step sizes or KL penalties
    only, and in which no rule raised a warning; newest first."""
    if run.kind not in COMPARED_KINDS:
        return []
    others = (
        Run.objects.filter(project=run.project_id, kind=run.kind, state=Run.State.FINISHED)
        .filter(about=None, thinned_at=None)  # extremes alone would mislead
        .exclude(pk=run.pk)
        .exclude(alerts__severity__in=["warning", "critical"])
        .order_by("-created_at")[:_MOST_RUNS]
    )
    inputs = _inputs_of([run, *others])
    own = _settings_of(run)
    alike = [o for o in others if inputs[o.pk] == inputs[run.pk] and _settings_of(o) == own]
    return alike[:MOST_RUNS]


def baseline_of(run: Run) -> Baseline | None:
    """What those runs looked like at each step; None where there are too few of them."""
    runs = healthy_like(run)
    if len(runs) < 2:
        return None
    names = compared_metrics(run.kind)
    return Baseline.of(metric_series(run=one, names=names, max_points=_POINTS) for one in runs)


def _inputs_of(runs: list[Run]) -> dict[str, frozenset[tuple[str, str]]]:
    rows = RunInput.objects.filter(run__in=runs, role__in=_INPUTS).values_list(
        "run_id", "role", "snapshot_id", "checkpoint_id", "upstream_id"
    )
    found: dict[str, set[tuple[str, str]]] = {run.pk: set() for run in runs}
    for run_id, role, snapshot, checkpoint, upstream in rows:
        found[run_id].add((role, snapshot or checkpoint or upstream or ""))
    return {pk: frozenset(pairs) for pk, pairs in found.items()}


def _settings_of(run: Run) -> dict[str, object]:
    config = recipe_config(run.kind, run.config)
    return {name: config.get(name) for name in _SETTINGS}


# Which of a run's checkpoints may be gone back to, and why the others may not.

FAILED, BEST, LAST, FINAL = "failed", "best", "last", "final"
CRITICAL = "critical"
# The roles that a run starts from, in order of preference, by kind.
START_ROLES = ("policy", "sft", "base")


@dataclass(frozen=True, slots=True)
class JudgedCheckpoint:
    """A kept checkpoint; `doubt` says why nothing should be built on it: empty where sound."""

    checkpoint: Checkpoint
    doubt: str = ""

    @property
    def is_healthy(self) -> bool:
        return not self.doubt


def checkpoints_judged(run: Run) -> list[JudgedCheckpoint]:
    """The kept checkpoints of a run, newest step first.

    One is in doubt when the trainer tagged it failed, when somebody rejected it, and when a
    critical alert of its own history came at or before its step: what it holds was learned under
    that problem.
    """
    first = first_critical(run)
    return [JudgedCheckpoint(row, _doubt(row, first)) for row in checkpoints(run) if row.tags]


def first_critical(run: Run) -> Alert | None:
    """The earliest critical alert that belongs to the history which counts."""
    ends = attempt_ends(run)
    alerts = Alert.objects.filter(run=run, severity=CRITICAL).order_by("step", "pk")
    return next((one for one in alerts if one.step <= ends.get(one.attempt, 0)), None)


def _doubt(row: Checkpoint, alert: Alert | None) -> str:
    if row.files_removed_at is not None:
        return f"its files were removed on {row.files_removed_at:%-d %B %Y}"
    if FAILED in row.tags:
        return "saved when the run failed: inspect it, but do not build on it"
    if row.status == Checkpoint.Status.REJECTED:
        return "rejected by a person"
    if alert is not None and alert.step <= row.step:
        return f"saved after the critical alert {alert.rule} of step {alert.step:,}"
    return ""


def last_healthy(run: Run) -> Checkpoint | None:
    """The newest sound checkpoint that is the best or last one of the run."""
    sound = (one.checkpoint for one in checkpoints_judged(run) if one.is_healthy)
    return next((row for row in sound if {BEST, LAST, FINAL} & set(row.tags)), None)


def started_from(run: Run) -> tuple[str, Checkpoint] | None:
    """(role, checkpoint) of the model that the run began with; None where it began from nothing,
    or where that is still being trained."""
    inputs = {
        row.role: row
        for row in RunInput.objects.filter(run=run).select_related("checkpoint__run", "upstream")
    }
    for role in START_ROLES:
        row = inputs.get(role)
        if row is not None:
            model = row.checkpoint or (row.upstream and checkpoint_for_use(row.upstream))
            return (role, model) if model else None
    return None


def sft_of(run: Run) -> Checkpoint | None:
    """The SFT or registered model that a run goes back to, over any policies between."""
    inputs = {
        row.role: row
        for row in RunInput.objects.filter(run=run).select_related("checkpoint__run", "upstream")
    }
    for _ in range(12):
        row = inputs.get("sft") or inputs.get("policy")
        model = row and (row.checkpoint or (row.upstream and checkpoint_for_use(row.upstream)))
        if not model:
            return None
        if model.run.kind in (Run.Kind.SFT, Run.Kind.REGISTER_POLICY):
            return model
        inputs = {
            row.role: row
            for row in RunInput.objects.filter(run=model.run).select_related(
                "checkpoint__run", "upstream"
            )
        }
    return None
