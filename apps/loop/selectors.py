"""Reading the circle: its runs, and whether its two reward models are independent."""

from dataclasses import dataclass

from apps.accounts.models import AuditEvent, Project
from apps.common.errors import Conflict
from apps.snapshots.assembling.rows import argument_key
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.selectors.snapshots import training_votes, voters
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Run

CANDIDATES = "candidates"  # purpose of an artifact of generated pairs, see workers.contract
QUEUED, REFUSED = "pairs.queued", "pairs.refused"  # in the audit log, once per run
STAGES = ("sft", "reward", "judge", "dpo", "ppo", "evaluate", "assess", "generate")


def launch_key(preset: str, snapshot: Snapshot, stage: str, round_number: int = 1) -> str:
    """Names one stage of one round for good: launching it again finds the run that there is."""
    return f"circle:{preset}:{snapshot.pk}:{round_number}:{stage}"


def circle_runs(
    *, project: Project, snapshot: Snapshot, preset: str, round_number: int = 1
) -> dict[str, Run]:
    """{stage: run} of a circle, in the order of its stages; stages not launched are left out."""
    keys = {launch_key(preset, snapshot, stage, round_number): stage for stage in STAGES}
    runs = Run.objects.filter(project=project, launch_key__in=keys)
    found = {keys[run.launch_key]: run for run in runs}
    return {stage: found[stage] for stage in STAGES if stage in found}


def runs_awaiting_queueing() -> set[str]:
    """Finished runs with generated pairs that nobody has put into the label queue yet."""
    done = AuditEvent.objects.filter(action__in=(QUEUED, REFUSED)).values("subject")
    waiting = Artifact.objects.filter(purpose=CANDIDATES, run__state=Run.State.FINISHED)
    return set(waiting.exclude(run__in=done).values_list("run_id", flat=True))


@dataclass(frozen=True, slots=True)
class Side:
    """Who and what stands behind the training rows of a preference snapshot."""

    annotators: frozenset[int]
    groups: frozenset[str]
    arguments: frozenset[str]


@dataclass(frozen=True, slots=True)
class Independence:
    """What two snapshots' training rows have in common; nothing, when `proved`."""

    first: Side
    second: Side

    @property
    def shared(self) -> dict[str, int]:
        return {
            name: len(getattr(self.first, name) & getattr(self.second, name))
            for name in ("annotators", "groups", "arguments")
        }

    @property
    def proved(self) -> bool:
        return not any(self.shared.values()) and bool(self.first.annotators)

    def figures(self) -> dict[str, dict[str, int]]:
        """Counts of both sides and of what they share, for reports."""
        sides = {"preferences": self.first, "judge": self.second}
        return {
            name: {
                "annotators": len(side.annotators),
                "groups": len(side.groups),
                "arguments": len(side.arguments),
            }
            for name, side in sides.items()
        } | {"shared": self.shared}


class NotIndependent(Conflict):
    """The judge would be no second opinion."""

    code = "judge_not_independent"


def independence(*, preferences: Snapshot, judge: Snapshot) -> Independence:
    """Read from the votes behind the rows and from the frozen files."""
    return Independence(_side(preferences), _side(judge))


def independence_required(*, preferences: Snapshot, judge: Snapshot) -> Independence:
    """As `independence`; raises `NotIndependent` naming what is shared."""
    found = independence(preferences=preferences, judge=judge)
    if not found.proved:
        shared = ", ".join(f"{n:,} {name}" for name, n in found.shared.items() if n)
        raise NotIndependent(
            f"'{judge.name}' cannot judge what '{preferences.name}' trains: their training rows "
            f"share {shared or 'nothing, for one of them is empty'}.",
            field="judge_preferences",
        )
    return found


def _side(snapshot: Snapshot) -> Side:
    rows = list(artifact_store().lines(f"{snapshot.uri}/{TRAIN}.jsonl"))
    return Side(
        annotators=voters(training_votes([snapshot.pk])),
        groups=frozenset(row["group"] for row in rows),
        arguments=frozenset(
            argument_key(row["prompt"], row[side])
            for row in rows
            for side in ("chosen", "rejected")
        ),
    )
