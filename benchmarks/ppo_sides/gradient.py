"""The policy's gradient by our update from what TRL's trainer learned from in its first step."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from workers.config import settings_for
from workers.ppo.model import ActorCritic, critic_of
from workers.ppo.rollout import Rollout
from workers.ppo.update import update
from workers.rollouts.local import Responses, Sampling


def agreement(policy_folder: Path, kept_by_trl: Path) -> dict[str, float]:
    """Cosine and ratio of norms (ours / TRL's) over all weights of the policy.

    Same weights, rollout, behaviour log-probabilities, advantages and clipping; the masks are
    TRL's. The critic is a model of its own on both sides, so nothing of its loss is in here.
    """
    kept = torch.load(kept_by_trl, weights_only=False)
    policy = AutoModelForCausalLM.from_pretrained(policy_folder, dtype=torch.float32)
    rollout = rollout_of(kept, policy.config.pad_token_id)
    actor_critic = ActorCritic(policy, critic=critic_of(policy))
    count = len(rollout.prompts)
    settings = settings_for(
        "ppo",
        {
            "batch_size": count,
            "minibatch_size": count,
            "update_epochs": 1,
            "max_grad_norm": 1e9,  # TRL does not clip
            "update_kl_target": 1e6,
            "max_tokens_per_batch": 256,
        },
    )
    optimizer = torch.optim.SGD(list(actor_critic.parameters()), lr=0.0)
    ours: dict[str, torch.Tensor] = {}
    optimizer.register_step_pre_hook(
        lambda *_: ours.update({n: p.grad.clone() for n, p in policy.named_parameters()})
    )
    update(actor_critic, optimizer, rollout, kept["advantages"], kept["returns"], settings, seed=0)
    theirs = kept["gradients"]
    a = torch.cat([ours[name].flatten() for name in theirs]).double()
    b = torch.cat([theirs[name].flatten() for name in theirs]).double()
    return {
        "cosine": float(a @ b / (a.norm() * b.norm())),
        "norm_ratio": float(a.norm() / b.norm()),
        "largest_difference_of_largest": float((a - b).abs().max() / b.abs().max()),
    }


def rollout_of(kept: dict[str, torch.Tensor], pad: int) -> Rollout:
    """TRL's batch as one of ours."""
    width = kept["context_length"]
    real = ~kept["padding_mask"]
    prompts = kept["query_responses"][:, :width]
    longest = int(real.sum(1).max())
    rows = len(prompts)
    responses = Responses(
        prompt_ids=prompts,
        prompt_mask=(prompts != pad).long(),
        response_ids=kept["responses"][:, :longest],
        response_mask=real[:, :longest].long(),
        ended=torch.ones(rows, dtype=torch.bool),
        texts=[""] * rows,
    )
    for name in ("logprobs", "ref_logprobs", "values", "returns", "advantages"):
        kept[name] = kept[name][:, :longest].clone()
    return Rollout(
        policy_version=0,
        sampling=Sampling(longest),
        prompts=[[]] * rows,
        responses=responses,
        logprobs=kept["logprobs"],
        ref_logprobs=kept["ref_logprobs"],
        entropy=torch.zeros_like(kept["logprobs"]),
        values=kept["values"],
    )
