"""Keeping the judge held out: a reward model that judges policies rewards none, and learned from
other rows than the reward model it stands beside."""

from collections.abc import Mapping

from django.db.models import QuerySet

from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.snapshots import shared_training_rows
from apps.training.models import Artifact, Run, RunInput
from apps.training.services.kinds import OPTIMISED, REWARDED, Input

_GIVEN_UP = (Run.State.FAILED, Run.State.CANCELLED)
_LEARNED_FROM = ("data", "hard")  # what a reward run's own rows come as
_CONTINUED = "base"


def held_out_judges(project_id: str) -> set[str]:
    """Reward runs whose model judges some run of the project. One that a policy was optimised
    against is held out no longer, whatever it judged since."""
    rows = RunInput.objects.filter(run__project_id=project_id)
    judges = _models(rows.filter(role="judge").exclude(run__state__in=_GIVEN_UP))
    if not judges:
        return judges
    return judges - _models(rows.filter(role="reward", run__kind__in=OPTIMISED))


def judge_check(*, project_id: str, kind: str, inputs: Mapping[str, Input]) -> None:
    """Raises `DomainError`: `judge_as_reward` where the reward would be a held-out judge (a policy
    trained on it would be judged by what it was trained on), `judge_not_held_out` where the judge
    learned from votes that the reward model learned from."""
    reward, judge = _run_of(inputs.get("reward")), _run_of(inputs.get("judge"))
    if kind in REWARDED and reward in held_out_judges(project_id):
        raise DomainError(
            "This reward model is the held-out judge of other runs: a policy trained on it "
            "could not be judged by it. Choose one that learned from other people.",
            code="judge_as_reward",
            field="inputs.reward",
        )
    if reward is None or judge is None:
        return
    shared = shared_training_rows(learned_from(reward), learned_from(judge))
    if shared:
        raise DomainError(
            f"The judge and the reward model learned from the same votes on {shared:,} "
            f"comparison{'s' if shared > 1 else ''}, so it would confirm the reward's mistakes. "
            "Choose a judge that learned from other votes.",
            code="judge_not_held_out",
            field="inputs.judge",
        )


def learned_from(run_id: str) -> set[str]:
    """Snapshots whose training rows a reward model has seen, those of the models it continues
    from included."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = {run_id}
    while waiting:
        rows = RunInput.objects.filter(run__in=waiting)
        seen |= waiting
        own = rows.filter(role__in=_LEARNED_FROM, snapshot__isnull=False)
        found |= set(own.values_list("snapshot_id", flat=True))
        waiting = _models(rows.filter(role=_CONTINUED)) - seen
    return found


def _run_of(given: Input | None) -> str | None:
    """The run whose model is given."""
    if given is None or isinstance(given, Snapshot | Artifact):
        return None
    return given.pk if isinstance(given, Run) else given.run_id


def _models(rows: QuerySet[RunInput]) -> set[str]:
    pairs = rows.values_list("upstream_id", "checkpoint__run_id")
    return {one for pair in pairs for one in pair if one}
