"""Which of a run's checkpoints may be gone back to, and why the others may not."""

from dataclasses import dataclass

from apps.training.models import Alert, Checkpoint, Run, RunInput
from apps.training.selectors.checkpoints import attempt_ends, checkpoint_for_use, checkpoints

FAILED, BEST, LAST, FINAL = "failed", "best", "last", "final"
CRITICAL = "critical"
# The roles that a run starts from, in order of preference, by kind.
START_ROLES = ("policy", "sft", "base")


@dataclass(frozen=True, slots=True)
class Judged:
    """A kept checkpoint; `doubt` says why nothing should be built on it: empty where sound."""

    checkpoint: Checkpoint
    doubt: str = ""

    @property
    def is_healthy(self) -> bool:
        return not self.doubt


def checkpoints_judged(run: Run) -> list[Judged]:
    """The kept checkpoints of a run, newest step first.

    One is in doubt when the trainer tagged it failed, when somebody rejected it, and when a
    critical alert of its own history came at or before its step: what it holds was learned under
    that trouble.
    """
    first = first_critical(run)
    return [Judged(row, _doubt(row, first)) for row in checkpoints(run) if row.tags]


def first_critical(run: Run) -> Alert | None:
    """The earliest critical alert that belongs to the history which counts."""
    ends = attempt_ends(run)
    alerts = Alert.objects.filter(run=run, severity=CRITICAL).order_by("step", "pk")
    return next((one for one in alerts if one.step <= ends.get(one.attempt, 0)), None)


def _doubt(row: Checkpoint, alert: Alert | None) -> str:
    if FAILED in row.tags:
        return "saved when the run failed: look into it, and build nothing on it"
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
    """The SFT model that a run goes back to, over any number of policies between."""
    inputs = {
        row.role: row
        for row in RunInput.objects.filter(run=run).select_related("checkpoint__run", "upstream")
    }
    for _ in range(12):
        row = inputs.get("sft") or inputs.get("policy")
        model = row and (row.checkpoint or (row.upstream and checkpoint_for_use(row.upstream)))
        if not model:
            return None
        if model.run.kind == Run.Kind.SFT:
            return model
        inputs = {
            row.role: row
            for row in RunInput.objects.filter(run=model.run).select_related(
                "checkpoint__run", "upstream"
            )
        }
    return None
