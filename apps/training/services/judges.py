"""Keeping the judge held out: a reward model that judges policies rewards none."""

from collections.abc import Mapping

from django.db.models import QuerySet

from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Run, RunInput
from apps.training.services.kinds import OPTIMISED, Input

REWARDED = OPTIMISED | {"evaluate"}  # kinds whose input `reward` is what a policy was trained on
_GIVEN_UP = (Run.State.FAILED, Run.State.CANCELLED)


def held_out_judges(project_id: str) -> set[str]:
    """Reward runs whose model judges some run of the project. One that a policy was optimised
    against is held out no longer, whatever it judged since."""
    rows = RunInput.objects.filter(run__project_id=project_id)
    judges = _models(rows.filter(role="judge").exclude(run__state__in=_GIVEN_UP))
    if not judges:
        return judges
    return judges - _models(rows.filter(role="reward", run__kind__in=OPTIMISED))


def judge_check(*, project_id: str, kind: str, inputs: Mapping[str, Input]) -> None:
    """Raises `DomainError` (judge_as_reward) where the reward would be a held-out judge: a policy
    trained on it would be judged by what it was trained on."""
    given = inputs.get("reward") if kind in REWARDED else None
    if given is None or isinstance(given, Snapshot | Artifact):
        return
    model = given.pk if isinstance(given, Run) else given.run_id
    if model in held_out_judges(project_id):
        raise DomainError(
            "This reward model is the held-out judge of other runs: what is trained on it can be "
            "judged by it no longer. Choose one that learned from other people.",
            code="judge_as_reward",
            field="inputs.reward",
        )


def _models(rows: QuerySet[RunInput]) -> set[str]:
    pairs = rows.values_list("upstream_id", "checkpoint__run_id")
    return {one for pair in pairs for one in pair if one}
