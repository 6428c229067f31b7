"""Everything a PPO run must remember to go on as if it had never stopped."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from workers import ranks
from workers.checkpoints import load_training_state, save_training_state
from workers.layouts.whole import is_split
from workers.ppo.actor_critic import ActorCritic
from workers.ppo.sharding import whole_state
from workers.ppo.zero import Zero
from workers.rl.moments import RunningMoments


@dataclass
class TrainingState:
    """Counters, scales, the controller's coefficient, and what guardrails saw and changed.

    Random numbers need no place here: every draw has a seed derived from run seed and step.
    """

    kl_coef: float
    step: int = 0  # steps done
    policy_version: int = 0  # optimizer steps done
    position: int = 0  # prompts used
    best: float | None = None  # best held-out score so far
    best_step: int | None = None
    not_better: int = 0  # evaluations since then
    moments: RunningMoments = field(default_factory=RunningMoments)
    baseline: dict[str, Any] | None = None  # the reference's answers before the first step
    guards: dict[str, Any] = field(default_factory=dict)
    watch: dict[str, Any] = field(default_factory=dict)  # what its counters look back over
    histograms: dict[str, Any] = field(default_factory=dict)  # their bins
    diagnosis: dict[str, Any] = field(default_factory=dict)  # what it saw and found
    sampler: list[float] = field(default_factory=list)  # z of the last rollouts
    adjusted: dict[str, float] = field(default_factory=dict)  # factors and terms, by setting


def save(
    folder: Path,
    actor_critic: ActorCritic,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer | Zero,
    state: TrainingState,
    *,
    afresh: Callable[[], ActorCritic] | None = None,
) -> None:
    """A model folder that any program can load, with the training state beside it.

    The first rank of a job writes; every rank must call. Weights that are split over the ranks are
    brought together in the model that `afresh` makes; others need none.
    """
    whole = whole_state(actor_critic, keep=ranks.is_first()) if is_split(actor_critic) else None
    if ranks.is_first():
        model = actor_critic
        if whole is not None and afresh is not None:
            with torch.random.fork_rng():
                model = afresh()
            model.load_state_dict(whole)
        model.save(tokenizer, folder)
    moments = optimizer.moments() if isinstance(optimizer, Zero) else optimizer.state.items()
    save_training_state(folder, moments, actor_critic.trained_names(), asdict(state))


def restore(
    folder: Path, actor_critic: ActorCritic, optimizer: torch.optim.Optimizer
) -> TrainingState:
    """The state of the checkpoint; the optimizer is put back too. Models are loaded before."""
    scalars = load_training_state(folder, optimizer, actor_critic.trained_names())
    moments = RunningMoments(**scalars.pop("moments"))
    return TrainingState(**scalars, moments=moments)
