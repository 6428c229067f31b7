"""What a recipe lends its preflight. Whatever it does not have is left out and not checked."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from workers.data.snapshot import Demonstration, Messages, Preference
from workers.rewards.source import RewardSource

if TYPE_CHECKING:
    from workers.memory.entries import Ledger
    from workers.ppo.actor_critic import ActorCritic


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
    policy: nn.Module | None = None  # the starting policy, in evaluation mode
    prompts: Sequence[Messages] = ()  # of training, those that fit
    prompt_ids: Sequence[Sequence[int]] = ()  # their token ids
    left_out: int = 0  # prompts or rows that were too long
    cut: int = 0  # rows that were cut to fit
    eval_prompts: Sequence[Messages] = ()
    reward: RewardSource | None = None
    critic: Critic | None = None
    demonstrations: Sequence[Demonstration] | None = None  # None: looked for among the inputs
    preferences: Sequence[Preference] | None = None  # None: looked for among the inputs
    ledger: "Ledger | None" = None  # None: made from the inputs
