"""A loss or gradient that is no number: the first step is skipped, then the run stops."""

import math
from typing import Any

from workers.contract.guards import RULES, GuardRule
from workers.guardrails.breach import SKIP, Breach

WINDOW = 50  # steps within which so many skips are too many
MOST = 2
RULE: GuardRule = next(rule for rule in RULES if rule.name == "non_finite")


class FiniteGuard:
    """Decides between skipping and stopping, and remembers.

    Skipping means that the step leaves the weights and the optimizer's moments as they were: the
    caller drops the gradients (`zero_grad(set_to_none=True)`) and takes no optimizer step. A zero
    gradient would not do, for AdamW moves on by momentum.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []  # those skipped, of the last WINDOW

    def skip_or_stop(
        self,
        step: int,
        what: str,
        *,
        skipped: bool = True,
        again: bool = False,
        value: float = math.nan,
    ) -> Breach:
        """The breach of `what` ("the loss") at `step`; its action is `skip` or `stop`.

        It stops when the step before was bad too, or this one a second time, or when two of the
        last fifty were. `skipped` says whether the step itself is dropped: a figure that is only
        looked at is not. `again`: the caller knows that it is the second time in a row.
        """
        recent = [s for s in self.steps if step - s <= WINDOW]
        again = again or (bool(recent) and step - recent[-1] <= 1)
        stop = again or len(recent) >= MOST
        self.steps = [*recent, step]
        found = f"{what} is not finite at step {step}"
        if not stop:
            done = (
                "The step was skipped: weights and moments are those before it. The run goes on."
                if skipped
                else "The run goes on."
            )
        else:
            why = "for the second time in a row" if again else f"{len(self.steps)} times of late"
            found = f"{found}, {why}"
            done = "The run was stopped; the checkpoint tagged failed holds the weights."
        return Breach(
            rule=RULE,
            action="stop" if stop else SKIP,
            step=step,
            value=value,
            threshold=RULE.threshold,
            message=f"{found[0].upper()}{found[1:]}. {done} {RULE.advice}",
            evidence={"found": what, "steps": ", ".join(map(str, self.steps))},
        )

    def told_since(self, step: int) -> bool:
        """Whether a step from `step` on was already told of."""
        return bool(self.steps) and self.steps[-1] >= step

    def state(self) -> dict[str, Any]:
        return {"steps": list(self.steps)}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps = [int(step) for step in state["steps"]]
