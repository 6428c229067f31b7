"""What a preflight found: one finding a check, and the report they make. No torch."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from measures.messages import Messages
from workers.contract.events import Fault
from workers.data.batches import Encoded
from workers.data.snapshot import Demonstration, JudgedAnswer, Preference
from workers.rewards.source import RewardSource

if TYPE_CHECKING:
    from workers.memory.ledger import Ledger
    from workers.ppo.model import ActorCritic


VERSION = 1
OK, UNKNOWN, WARN, BLOCK = "ok", "unknown", "warn", "block"
LEVELS = (OK, UNKNOWN, WARN, BLOCK)  # the gravest last
MARKS = {OK: "ok", UNKNOWN: "not checked", WARN: "warning", BLOCK: "blocked"}

TITLES = {
    "configuration": "Configuration",
    "reward": "Reward against chance",
    "reward_shape": "Shape of the scores",
    "reward_people": "Scores and people",
    "kl_price": "Price of divergence",
    "critic": "Critic on a fixed rollout",
    "eval_overlap": "Training and evaluation prompts",
    "sft_overlap": "Prompts and demonstrations",
    "data": "Data",
    "lengths": "Lengths",
    "template": "What is learnt of a row",
    "memory": "Memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check. `message` says what was found, with its numbers, and what to do where something
    is to be done; `unknown` is a check that could not be made, and the message says why.

    `evidence` holds blocks that a page can draw (measures.trust.findings), as plain JSON.
    """

    level: str  # ok | unknown | warn | block
    check: str  # a key of TITLES
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Mapping[str, Any], ...] = ()
    fault: Fault = Fault.CONFIGURATION  # whose turn it is where it blocks

    @property
    def line(self) -> str:
        """One line of the log."""
        return f"Preflight, {TITLES[self.check].lower()}: {MARKS[self.level]}. {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings of one run, in the order of TITLES."""

    kind: str
    findings: tuple[Finding, ...]
    seconds: float = 0.0
    memory: Mapping[str, Any] | None = None  # the ledger (docs/memory.md)
    changed: Mapping[str, Sequence[Any]] | None = None  # of a minimal reproduction: before, after

    @property
    def level(self) -> str:
        return max((f.level for f in self.findings), key=LEVELS.index, default=OK)

    @property
    def blocked(self) -> list[Finding]:
        return [f for f in self.findings if f.level == BLOCK]

    def of(self, check: str) -> Finding | None:
        return next((f for f in self.findings if f.check == check), None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; the shape is described in docs/preflight.md."""
        return plain_json(
            {
                "version": VERSION,
                "kind": self.kind,
                "level": self.level,
                "blocked": [f.check for f in self.blocked],
                "seconds": round(self.seconds, 2),
                "findings": [
                    {
                        "check": f.check,
                        "title": TITLES[f.check],
                        "level": f.level,
                        "message": f.message,
                        "figures": f.figures,
                        "evidence": list(f.evidence),
                    }
                    for f in self.findings
                ],
                "memory": self.memory,
                "changed": self.changed,
            }
        )

    def summary(self) -> dict[str, Any]:
        """For the run's summary: how each check ended."""
        return {
            "level": self.level,
            "checks": {f.check: f.level for f in self.findings},
        }


def plain_json(value: Any) -> Any:
    """Plain JSON types; what is no finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):  # numpy's and torch's scalars
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# What a recipe lends its preflight. Whatever it does not have is left out and not checked.


class Critic(Protocol):
    """What can be fitted to returns. `values` answers [B, R] for prompt ids and mask, response ids
    and mask; `parameters` are what is trained for it."""

    def values(
        self, prompt_ids: Tensor, prompt_mask: Tensor, response_ids: Tensor, response_mask: Tensor
    ) -> Tensor: ...

    def parameters(self) -> Iterable[nn.Parameter]: ...


@dataclass(frozen=True, slots=True)
class CriticParts:
    """A `Critic` made of a function and parameters."""

    values: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    trained: Sequence[nn.Parameter]

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.trained


def critic_parts(actor_critic: "ActorCritic") -> CriticParts:
    """PPO's critic: its own weights, and on a shared trunk what the policy trains there too."""
    trained = list(actor_critic.critic_parameters())
    if actor_critic.critic is None:
        trained += actor_critic.policy_parameters()
    return CriticParts(actor_critic.values, trained)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The run's own objects, before its first step."""

    tokenizer: PreTrainedTokenizerBase
    policy: Any = None  # the starting policy, in evaluation mode
    prompts: Sequence[Messages] = ()  # of training, those that fit
    prompt_ids: Sequence[Sequence[int]] = ()  # their token ids
    left_out: int = 0  # prompts or rows that were too long
    cut: int = 0  # rows that were cut to fit
    example: Encoded | None = None  # a row of SFT, to be shown as the model reads it
    changed_answers: int = 0  # earlier answers that the template shows otherwise than the last
    eval_prompts: Sequence[Messages] = ()
    reward: RewardSource | None = None
    critic: Critic | None = None
    demonstrations: Sequence[Demonstration] | None = None  # None: looked for among the inputs
    preferences: Sequence[Preference] | None = None  # None: looked for among the inputs
    answers: Sequence[JudgedAnswer] | None = None  # None: looked for among the inputs
    ledger: "Ledger | None" = None  # None: made from the inputs
