"""Can the critic learn the returns at all? It is fitted alone to one batch that does not change."""

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from measures.blocks import Table
from workers.artifacts import state_of
from workers.checks.asking import (
    BATCH,
    ask,
    evaluation_sampling,
    fixed_prompts,
    fresh_reward,
    speaker,
)
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.numbers import plain
from workers.ppo.model import CRITIC_FILE, VALUE_HEAD_FILE, ActorCritic, critic_of
from workers.preflight.critic import DEAD, FixedRollout, critic_finding, fit_critic
from workers.preflight.findings import BLOCK, OK, WARN, critic_parts
from workers.rl.losses import RunningMoments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CLIP = 5.0  # deviations


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    """γ = 1 and no KL penalty, so that every token's return is its answer's normalised
    score: what a critic must be able to tell before anything harder."""
    policy = speaker(context, "policy")
    prompts = fixed_prompts(context, settings, policy.tokenizer)
    parts = pace.parts(min(BATCH, len(prompts)), BATCH, "answering the fixed prompts")
    drawn = next(ask(policy, prompts.ids[:BATCH], evaluation_sampling(context, settings), parts))
    responses = drawn.responses
    scores = fresh_reward(context, settings).score(
        prompts.messages[: len(responses.texts)], responses.texts
    )
    raw = torch.tensor(scores.values, device=responses.response_ids.device)
    moments = RunningMoments()
    moments.update(raw)
    context.progress(0, 1, "fitting the critic")
    actor_critic = trained(context, policy.model.requires_grad_(True))
    fit = fit_critic(
        critic_parts(actor_critic),
        FixedRollout(
            responses.prompt_ids,
            responses.prompt_mask,
            responses.response_ids,
            responses.response_mask,
            moments.normalise(raw, clip=CLIP)[:, None] * responses.response_mask,
        ),
        max_seconds=min(settings.max_seconds, 30.0),
    )
    finding = critic_finding(fit, answers=len(raw))
    outcome = {OK: REFUTES, WARN: CONFIRMS, BLOCK: CONFIRMS}.get(finding.level, UNDECIDED)
    words = finding.message
    if settings.reported is not None and outcome == REFUTES:
        words += (
            f" In the run it explained {plain(100 * settings.reported, 0)} %: look at its step "
            "size, and at a policy that moves under it."
        )
    return Found(
        outcome=outcome,
        words=words,
        n=len(raw),
        figures={
            "explained_before": fit.before,
            "explained_after": fit.after,
            "fit_steps": fit.steps,
            "fit_seconds": fit.seconds,
            "gradient": fit.gradient,
            "reported": settings.reported,
        },
        details={
            "step": settings.step,
            "returns": [
                {"prompt": messages[-1]["content"], "score": score, "tokens": int(length)}
                for messages, score, length in zip(
                    prompts.messages, scores.values, responses.lengths, strict=False
                )
            ],
        },
        evidence=(
            Table(
                title="Variance of the returns that the critic explains",
                columns=("When", "Explained variance"),
                formats=("text", "number"),
                rows=(
                    *(
                        (("in the run", settings.reported),)
                        if settings.reported is not None
                        else ()
                    ),
                    ("before the fit", fit.before),
                    (f"after {fit.steps} steps alone", fit.after),
                ),
                note=f"{DEAD:g} at least after the fit, or it is dead; 1 explains everything.",
            ),
        ),
    )


def trained(context: RunContext, policy: "PreTrainedModel") -> ActorCritic:
    """The policy with the critic that its checkpoint holds; with a new head where it holds none."""
    folder = state_of(context.input_path("policy"))
    critic = critic_of(policy) if (folder / CRITIC_FILE).is_file() else None
    actor_critic = ActorCritic(policy, critic=critic)
    if (folder / VALUE_HEAD_FILE).is_file():
        device = str(actor_critic.value_head.weight.device)
        actor_critic.value_head.load_state_dict(load_file(folder / VALUE_HEAD_FILE, device=device))
    if critic is not None:
        critic.load_state_dict(load_file(folder / CRITIC_FILE, device=str(policy.device)))
    return actor_critic.eval()
