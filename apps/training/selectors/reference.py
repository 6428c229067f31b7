"""Healthy runs that a run can be compared with, step by step."""

from dataclasses import dataclass

from apps.training.models import Alert, Checkpoint, Run, RunInput
from apps.training.selectors.metrics import metric_series
from apps.training.selectors.runs import attempt_ends, checkpoint_for_use, checkpoints
from workers.config import recipe_config
from workers.rules.choices import BY_NAME, compared_metrics
from workers.rules.diagnosis import LEAST_RUNS, Baseline

COMPARED_KINDS = ("ppo", "grpo", "dpo", "kto", "sft", "reward")
MOST_RUNS = 12
SIZE_APART = 0.2  # share by which inputs of near-identical runs may differ in size
WIDER = 1.5  # times the limits, against runs with other inputs of the same roles and sizes
_MOST_RUNS = 60
_POINTS = 2000
# What must be alike for two runs' figures to be comparable: where they start, what they answer and
# what rewards them, and how much they draw. Step sizes and KL penalties are what is being judged.
_INPUTS = ("sft", "policy", "reference", "reward", "prompts", "data", "base")
_SETTINGS = (
    "batch_size",
    "max_new_tokens",
    "temperature",
    "lora_rank",
    "critic",
    "group_size",
    "steps",
    "epochs",
    "max_steps",
    "loss_type",
    "beta",
    "minimal",  # a longer run warms up for longer and slows down later
)


@dataclass(frozen=True, slots=True)
class HealthyRuns:
    """`near`: their inputs have the same roles, kinds and sizes and are others, such as a reward
    model that was trained again."""

    runs: list[Run]
    near: bool = False


def healthy_like(run: Run) -> HealthyRuns:
    """Finished runs of the project that differ from `run` in seed, step sizes or KL penalties
    only, and in which no rule raised a warning, newest first; where they are too few, those that
    read other inputs of the same roles and sizes as well."""
    if run.kind not in COMPARED_KINDS:
        return HealthyRuns([])
    others = (
        Run.objects.filter(project=run.project_id, kind=run.kind, state=Run.State.FINISHED)
        .filter(about=None, thinned_at=None)  # extremes alone would mislead
        .exclude(pk=run.pk)
        .exclude(alerts__severity__in=["warning", "critical"])
        .order_by("-created_at")[:_MOST_RUNS]
    )
    inputs = _inputs_of([run, *others])
    own, asked = _settings_of(run), inputs[run.pk]
    alike = [one for one in others if _settings_of(one) == own]
    same = [one for one in alike if _ids(inputs[one.pk]) == _ids(asked)]
    if len(same) >= LEAST_RUNS:
        return HealthyRuns(same[:MOST_RUNS])
    near = [one for one in alike if _is_near(inputs[one.pk], asked)]
    if len(near) > len(same) and len(near) >= LEAST_RUNS:
        return HealthyRuns(near[:MOST_RUNS], near=True)
    return HealthyRuns(same[:MOST_RUNS])


def baseline_of(run: Run) -> Baseline | None:
    """What those runs looked like at each step; None where there are too few of them."""
    found = healthy_like(run)
    if len(found.runs) < 2:
        return None
    names = compared_metrics(run.kind)
    return Baseline.of(
        (metric_series(run=one, names=names, max_points=_POINTS) for one in found.runs),
        wider=WIDER if found.near else 1.0,
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """One input: what it is, of which kind, and how large (rows of a dataset, bytes of a model)."""

    id: str
    kind: str
    size: int


def _inputs_of(runs: list[Run]) -> dict[str, dict[str, _Given]]:
    """By run and role."""
    rows = RunInput.objects.filter(run__in=runs, role__in=_INPUTS).select_related(
        "snapshot", "checkpoint__run", "upstream"
    )
    found: dict[str, dict[str, _Given]] = {run.pk: {} for run in runs}
    for row in rows:
        found[row.run_id][row.role] = _given(row)
    return found


def _given(row: RunInput) -> _Given:
    if row.snapshot is not None:
        rows = row.snapshot.counts.get("rows", {})
        return _Given(row.snapshot.pk, row.snapshot.kind, sum(rows.values()))
    if row.checkpoint is not None:
        return _Given(row.checkpoint.pk, row.checkpoint.run.kind, row.checkpoint.size_bytes)
    kind = row.upstream.kind if row.upstream is not None else ""
    return _Given(row.upstream_id or "", kind, 0)


def _ids(given: dict[str, _Given]) -> dict[str, str]:
    return {role: one.id for role, one in given.items()}


def _is_near(one: dict[str, _Given], other: dict[str, _Given]) -> bool:
    """The same roles, each of the same kind and size."""
    return one.keys() == other.keys() and all(
        one[role].kind == other[role].kind
        and abs(one[role].size - other[role].size)
        <= SIZE_APART * max(one[role].size, other[role].size)
        for role in one
    )


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
        rule = BY_NAME.get(alert.rule)
        name = f"“{rule.title}”" if rule else alert.rule
        return f"saved after the critical alert {name} of step {alert.step:,}"
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
