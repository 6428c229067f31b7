"""The steps of a pipeline, as they stand in its versions.

A step's inputs come from an earlier step of the same round, from the same step of the round before,
or are fixed; the first two name what stands in where that step gave nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

FREEZE, RUN, APPROVE, PROMOTE = "freeze", "run", "approve", "promote"  # kinds of steps
STEP, PREVIOUS, FIXED = "step", "previous", "fixed"  # where an input comes from
SNAPSHOT, CHECKPOINT, ARTIFACT = "snapshot", "checkpoint", "artifact"
TITLES = {
    "freeze": "Freeze the dataset",
    "reward": "Train the reward model",
    "assess": "Assess the reward model",
    "approve": "Approve the reward model",
    "policy": "Train the policy",
    "evaluate": "Evaluate the policy",
    "promote": "Promote the policy",
}  # by key, in order


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
    launcher, priority: of a run, as the run `copied_from` had them. recipe: of a freeze. of: the
    step whose model people approve or promote; stage: to which."""

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
