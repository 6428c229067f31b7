"""Healthy runs that a run can be compared with, step by step."""

from apps.training.models import Run, RunInput
from apps.training.selectors.metrics import metric_series
from workers.config import recipe_config
from workers.diagnosis.baseline import Baseline
from workers.diagnosis.detectors import compared_metrics

COMPARED_KINDS = ("ppo", "grpo")
MOST_RUNS = 12
_LOOKED_AT = 60
_POINTS = 2000
# What must be alike for two runs' figures to be comparable: where they start, what they answer and
# what rewards them, and how much they draw. Step sizes and prices are what is being judged.
_INPUTS = ("sft", "policy", "reference", "reward", "prompts")
_SETTINGS = (
    *("batch_size", "max_new_tokens", "temperature", "lora_rank", "critic", "group_size"),
    *("steps", "minimal"),  # a longer run warms up for longer and slows down later
)


def healthy_like(run: Run) -> list[Run]:
    """Finished runs of the project that differ from `run` in seed, step sizes or prices only, and
    in which no rule raised a warning; newest first."""
    if run.kind not in COMPARED_KINDS:
        return []
    others = (
        Run.objects.filter(project=run.project_id, kind=run.kind, state=Run.State.FINISHED)
        .filter(about=None, thinned_at=None)  # extremes alone would mislead
        .exclude(pk=run.pk)
        .exclude(alerts__severity__in=["warning", "critical"])
        .order_by("-created_at")[:_LOOKED_AT]
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
