"""Everything a PPO run must remember to go on as if it had never stopped."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from workers.checkpoints import load_training_state, save_training_state
from workers.models import save_model
from workers.ppo.actor_critic import ActorCritic
from workers.rl.moments import RunningMoments


@dataclass
class TrainingState:
    """Counters, scales and the controller's coefficient.

    Random numbers need no place here: every draw has a seed derived from run seed and step.
    """

    kl_coef: float
    step: int = 0  # steps done
    policy_version: int = 0  # optimizer steps done
    position: int = 0  # prompts used
    best: float | None = None  # best held-out score so far
    moments: RunningMoments = field(default_factory=RunningMoments)


def save(
    folder: Path,
    actor_critic: ActorCritic,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
) -> None:
    """A model folder that any program can load, with the training state beside it."""
    save_model(actor_critic.policy, tokenizer, folder)
    actor_critic.save_head(folder)
    save_training_state(folder, optimizer, _names(actor_critic), asdict(state))


def restore(
    folder: Path, actor_critic: ActorCritic, optimizer: torch.optim.Optimizer
) -> TrainingState:
    """The state of the checkpoint; the optimizer is put back too. Models are loaded before."""
    scalars: dict[str, Any] = load_training_state(folder, optimizer, _names(actor_critic))
    moments = RunningMoments(**scalars.pop("moments"))
    return TrainingState(**scalars, moments=moments)


def _names(actor_critic: ActorCritic) -> Mapping[torch.nn.Parameter, str]:
    return {parameter: name for name, parameter in actor_critic.named_parameters()}
