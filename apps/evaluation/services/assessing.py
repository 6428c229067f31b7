"""Starting an assessment of a reward model."""

from collections.abc import Mapping
from typing import Any

from apps.accounts.models import User
from apps.common.errors import DomainError
from apps.evaluation.selectors.assessments import assess_runs, dataset_of
from apps.training.models import Checkpoint, Run
from apps.training.services import run_launch
from apps.training.services.kinds import Input
from workers.contract.wire import QUEUE_CPU

_LONGEST_NAME = 120


def assessment_start(
    *,
    checkpoint: Checkpoint,
    inputs: Mapping[str, Input],
    config: Mapping[str, Any],
    name: str = "",
    seed: int = 0,
    queue: str = QUEUE_CPU,
    user: User | None = None,
    idempotency_key: str = "",
) -> Run:
    """Launch an `assess` run of this model. Without `data` among the inputs it is judged on the
    unseen rows of the dataset that it was trained on.

    Raises `DomainError` naming the field; then nothing was stored.
    """
    given = dict(inputs)
    if given.get("reward", checkpoint) != checkpoint:
        raise DomainError(
            "The model of this page is the one that is assessed; leave the input out.",
            code="other_model",
            field="inputs.reward",
        )
    trained_on = dataset_of(checkpoint.run)
    if "data" not in given and trained_on is not None:
        given["data"] = trained_on
    return run_launch(
        project=checkpoint.project,
        kind=Run.Kind.ASSESS,
        name=name or assessment_name(checkpoint),
        config=config,
        inputs={**given, "reward": checkpoint},
        seed=seed,
        queue=queue,
        user=user,
        idempotency_key=idempotency_key,
    )


def assessment_name(checkpoint: Checkpoint) -> str:
    """ "rewards, step 400: assessment 2" """
    after = f", step {checkpoint.step}: assessment {assess_runs(checkpoint).count() + 1}"
    return f"{checkpoint.run.name[: _LONGEST_NAME - len(after)]}{after}"
