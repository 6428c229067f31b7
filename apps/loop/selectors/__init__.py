"""Reading the circle: its runs, and whether its two reward models are independent."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import AuditEvent, Project
from apps.common.errors import Conflict
from apps.labeling.models import PairSelection
from apps.labeling.selectors.batches import SentPairs, batch_sent, selection_of
from apps.snapshots.assembling.rows import argument_key
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.selectors.snapshots import training_votes, voters
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Run

CANDIDATES = "candidates"  # purpose of an artifact of generated pairs, see workers.contract
# In the audit log; of the first two one for each run that sends its pairs by itself.
QUEUED, REFUSED, TAKEN_BACK = "pairs.queued", "pairs.refused", "pairs.taken_back"
SELECTED = "pairs.selected"
# The first two are of rounds that start from pretrained models.
STAGES = (
    *("policy", "encoder", "sft", "reward", "judge"),
    *("dpo", "ppo", "evaluate", "suite", "assess", "generate"),
)


def launch_key(preset: str, snapshot: Snapshot, stage: str, round_number: int = 1) -> str:
    """Names one stage of one round for good: launching it again finds the run that there is."""
    return f"circle:{preset}:{snapshot.pk}:{round_number}:{stage}"


def round_of(run: Run) -> dict[str, Run]:
    """{stage: run} of the round that a run was launched in, in the order of its stages; stages not
    launched are left out. Empty for a run of no round."""
    of_round, _, _ = run.launch_key.rpartition(":")
    if not of_round.startswith("circle:"):
        return {}
    keys = {f"{of_round}:{stage}": stage for stage in STAGES}
    runs = Run.objects.filter(project=run.project_id, launch_key__in=keys)
    found = {keys[one.launch_key]: one for one in runs.select_related("project")}
    return {stage: found[stage] for stage in STAGES if stage in found}


def evaluations_of_rounds(project: Project) -> QuerySet[Run]:
    """That have finished, the newest first."""
    rows = Run.objects.filter(
        project=project,
        launch_key__startswith="circle:",
        launch_key__endswith=":evaluate",
        state=Run.State.FINISHED,
    )
    return rows.select_related("project").order_by("-ended_at")


def runs_awaiting_queueing() -> set[str]:
    """Finished runs that were to put their generated pairs into the label queue and have not."""
    done = AuditEvent.objects.filter(action__in=(QUEUED, SELECTED, REFUSED)).values("subject")
    waiting = Artifact.objects.filter(
        purpose=CANDIDATES, run__state=Run.State.FINISHED, run__config__to_people=True
    )
    return set(waiting.exclude(run__in=done).values_list("run_id", flat=True))


def batch_of(run: Run) -> str:
    """What the comparisons made of a run's pairs are marked with."""
    return f"run {run.pk}"


def pairs_file(run: Run) -> Artifact | None:
    """The pairs that the run's last attempt wrote."""
    rows = Artifact.objects.filter(run=run, purpose=CANDIDATES, attempt=run.attempt)
    return rows.order_by("-seq").first()


def pairs_sent(run: Run) -> SentPairs:
    return batch_sent(project_id=run.project_id, batch=batch_of(run))


def pairs_selection(run: Run) -> PairSelection | None:
    return selection_of(project_id=run.project_id, batch=batch_of(run))


@dataclass(frozen=True, slots=True)
class Side:
    """Who and what stands behind the training rows of a preference snapshot. annotators: None
    where the labels were given elsewhere, by nobody that is known here."""

    annotators: frozenset[int] | None
    groups: frozenset[str]
    arguments: frozenset[str]


@dataclass(frozen=True, slots=True)
class Independence:
    """What two snapshots' training rows have in common; nothing, when `proved`."""

    first: Side
    second: Side

    @property
    def shared(self) -> dict[str, int]:
        sides = {
            name: (getattr(self.first, name), getattr(self.second, name))
            for name in ("annotators", "groups", "arguments")
        }
        return {name: len(a & b) for name, (a, b) in sides.items() if None not in (a, b)}

    @property
    def proved(self) -> bool:
        known = self.first.arguments if self.first.annotators is None else self.first.annotators
        return not any(self.shared.values()) and bool(known)

    def figures(self) -> dict[str, dict[str, Any]]:
        """Counts of both sides and of what they share, for reports."""
        sides = {"preferences": self.first, "judge": self.second}
        return {
            name: {
                "annotators": None if side.annotators is None else len(side.annotators),
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
        annotators=None
        if snapshot.is_imported
        else frozenset(voters(training_votes([snapshot.pk]))),
        groups=frozenset(row["group"] for row in rows),
        arguments=frozenset(
            argument_key(row["prompt"], row[side])
            for row in rows
            for side in ("chosen", "rejected")
        ),
    )
