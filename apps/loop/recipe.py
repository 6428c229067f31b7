"""The steps of a pipeline, as they stand in its versions.

A step's inputs come from an earlier step of the same round, from the same step of the round before,
or are fixed; the first two name what stands in where that step gave nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

FREEZE, RUN, SELECT = "freeze", "run", "select"  # kinds of steps that machines do
LABEL, DECIDE, APPROVE, AUDIT, PROMOTE = "label", "decide", "approve", "audit", "promote"  # people
STEP, PREVIOUS, FIXED = "step", "previous", "fixed"  # where an input comes from
SNAPSHOT, CHECKPOINT, ARTIFACT = "snapshot", "checkpoint", "artifact"
TITLES = {
    "generate": "Generate pairs of answers",
    "select": "Choose which pairs people label",
    "label": "People label the pairs",
    "decide": "Reviewers decide the disputes",
    "freeze": "Freeze the dataset",
    "reward": "Train the reward model",
    "assess": "Assess the reward model",
    "approve": "Approve the reward model",
    "policy": "Train the policy",
    "evaluate": "Evaluate the policy",
    "audit": "People audit the policy",
    "promote": "Promote the policy",
}  # by key, in order


@dataclass(frozen=True, slots=True)
class Rules:
    """What starts a pipeline's rounds by themselves, and what ends one in order; None is no such
    rule. Columns of `PipelineVersion`, fields of forms and of the API have these names.

    trigger_pairs: fresh accepted pairs. trigger_age_days: of the newest reward model.
    trigger_drift: a watched model differs from its baseline. trigger_every_days: at the hour
    `trigger_at_hour`, UTC, from the day on which the version was saved.

    budget_minutes: wall time of freezes and runs. budget_votes: on the round's generated pairs,
    else of the project while the round lasts. budget_gpu_hours: of processes on GPU queues.
    budget_money: votes and GPU hours by their prices, in `currency`.
    """

    trigger_pairs: int | None = None
    trigger_age_days: int | None = None
    trigger_drift: bool = False
    trigger_every_days: int | None = None
    trigger_at_hour: int = 6
    budget_minutes: int | None = None
    budget_votes: int | None = None
    budget_gpu_hours: float | None = None
    budget_money: float | None = None
    price_vote: float | None = None
    price_gpu_hour: float | None = None
    currency: str = ""


RULE_NAMES = tuple(one.name for one in fields(Rules))


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input comes from. `type` and `id` name what is fixed, or what stands in."""

    origin: str
    step: str = ""
    type: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """key: unique in a pipeline, see `TITLES`. run_kind, config, seed, queue, layout, processes,
    launcher, priority: of a run, as the run `copied_from` had them. recipe: of a freeze. plan: of a
    selection, see `SelectionPlan`. of: the step whose model people approve, audit or promote;
    stage: to which.

    Of labeling: `share` of the generated pairs, in percent, that must have their votes; `hours`
    after which the round continues without the rest; `pairs`: where nothing is generated, the fresh
    accepted pairs that it waits for."""

    key: str
    kind: str
    enabled: bool = True
    run_kind: str = ""
    copied_from: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    queue: str = ""
    layout: str = ""
    processes: int = 1
    launcher: str = ""
    priority: int = 1
    inputs: Mapping[str, Source] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    of: str = ""
    stage: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    share: int = 90
    hours: int | None = None
    pairs: int | None = None

    @property
    def title(self) -> str:
        return TITLES[self.key]

    @property
    def may_be_off(self) -> bool:
        """People approve in every round of a pipeline that trains a reward model, unless somebody
        skips it there and says why."""
        return self.kind != APPROVE

    def with_input(self, role: str, source: Source) -> "Step":
        return replace(self, inputs={**self.inputs, role: source})


def steps_to_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Plain JSON types; `steps_from_json` is its inverse."""
    return [asdict(step) for step in steps]


def steps_from_json(rows: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Fields that this version does not know are passed over."""
    known = {one.name for one in fields(Step)}
    return [
        Step(
            **{name: value for name, value in row.items() if name in known and name != "inputs"},
            inputs={role: Source(**one) for role, one in row.get("inputs", {}).items()},
        )
        for row in rows
    ]
