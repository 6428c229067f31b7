"""What is looked at around a PPO run: before its first step, at its scores, and at its end."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from workers.bottleneck import bottleneck
from workers.models import parameter_count
from workers.ppo.figures import Figures, score_figures
from workers.ppo.rollout import Rollout
from workers.preflight.findings import Report
from workers.preflight.parts import CriticParts, Parts
from workers.preflight.run import run_preflight

if TYPE_CHECKING:
    from workers.recipes.ppo import Loop


def preflight(loop: "Loop") -> Report | None:
    """The checks that are cheap on every fresh run, and all of them where a person asked."""
    settings, models = loop.settings, loop.models
    if settings.reward_check == "off" and not settings.preflight:
        return None
    critic = CriticParts(models.actor_critic.values, models.actor_critic.critic_parameters())
    return run_preflight(
        loop.context,
        "ppo",
        settings,
        Parts(
            tokenizer=models.tokenizer,
            policy=models.actor_critic.policy,
            prompts=loop.prompts.messages,
            prompt_ids=loop.prompts.ids,
            left_out=loop.prompts.left_out,
            eval_prompts=loop.eval_prompts.messages,
            reward=loop.reward,
            critic=critic if settings.preflight else None,
        ),
    )


def scored(loop: "Loop", rollout: Rollout, trusted: Tensor) -> Figures:
    """Figures of the batch's raw scores against their running scale."""
    moments = loop.state.moments
    return score_figures(
        rollout.scores,
        trusted,
        mean=moments.mean,
        std=moments.std if moments.count > 1 else None,
        clip=loop.settings.reward_clip,
    )


def summary(loop: "Loop") -> dict[str, Any]:
    """The headline figures of a run that ended."""
    state = loop.state
    figures: dict[str, Any] = {
        "step": state.step,
        "parameters": parameter_count(loop.models.actor_critic.policy),
        "trained_parameters": sum(p.numel() for p in loop.models.actor_critic.trained_names()),
        "prompts": len(loop.prompts),
        "prompts_left_out": loop.prompts.left_out,
        "reference_sha256": loop.models.reference.sha256,
        "best_step": state.best_step,
        "first": loop.first.metrics() if loop.first else {},
        "last": loop.last.metrics() if loop.last else {},
    }
    if loop.stopped_by:
        figures["stopped_by"] = loop.stopped_by
    if state.adjusted:
        figures["adjusted"] = dict(state.adjusted)
    if loop.timed:
        tokens = [t["throughput/response_tokens_per_s"] * t["time/step_s"] for t in loop.timed]
        figures["bottleneck"] = bottleneck(loop.timed, tokens=tokens).to_json()
    return figures
