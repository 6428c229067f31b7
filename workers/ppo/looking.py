"""What is looked at around a PPO run: before its first step, at its scores, and at its end."""

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workers import ranks
from workers.bottleneck import bottleneck
from workers.latency import measure_latency
from workers.layouts.whole import size_of
from workers.models.loading import parameter_count, stop_ids
from workers.ppo.batches import sequences_of
from workers.ppo.figures import Figures, score_figures
from workers.ppo.first import by_first
from workers.ppo.rollout import Rollout
from workers.preflight.findings import Report
from workers.preflight.parts import Parts, critic_parts
from workers.preflight.run import run_preflight
from workers.rollouts.local import Responses, generate
from workers.rollouts.sampling import Sampling

if TYPE_CHECKING:
    from workers.ppo.course import Course

LATENCY_FILE = "latency.json"


def preflight(loop: "Course") -> Report:
    """Data, memory and the reward before the first step; the critic too where a person asked and
    no pass of one rank waits for the others. The first rank looks for all."""
    settings, models = loop.settings, loop.models
    fits = settings.preflight and not models.tied
    parts = Parts(
        tokenizer=models.tokenizer,
        policy=models.actor_critic.policy,
        prompts=loop.prompts.messages,
        prompt_ids=loop.prompts.ids,
        left_out=loop.prompts.left_out,
        eval_prompts=loop.eval_prompts.messages,
        reward=loop.reward,
        critic=critic_parts(models.actor_critic) if fits else None,
    )
    with models.whole():
        return by_first(lambda: run_preflight(loop.context, "ppo", settings, parts))


def scored(loop: "Course", rollout: Rollout, trusted: Tensor) -> Figures:
    """Figures of the batch's raw scores against their running scale."""
    moments = loop.state.moments
    return score_figures(
        rollout.scores,
        trusted,
        mean=moments.mean,
        std=moments.std if moments.count > 1 else None,
        clip=loop.settings.reward_clip,
    )


def watched(loop: "Course", rollout: Rollout) -> Figures:
    """What the batch's answers say, and what the reward makes of it."""
    responses = rollout.responses
    return loop.watch.look(responses.texts, rollout.scores.values, responses.lengths.tolist())


def summary(loop: "Course") -> dict[str, Any]:
    """The headline figures of a run that ended."""
    state = loop.state
    figures: dict[str, Any] = {
        "step": state.step,
        "parameters": parameter_count(loop.models.actor_critic.policy),
        "trained_parameters": sum(map(size_of, loop.models.actor_critic.trained_names())),
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


def latency(loop: "Course") -> dict[str, Any]:
    """Answers timed one at a time, with and without the value head, as the artifact latency.json;
    nothing where none are wanted."""
    requests = loop.settings.latency_requests
    if not requests:
        return {}
    with loop.models.whole():
        return _timed(loop, requests) if ranks.is_first() else {}


def _timed(loop: "Course", requests: int) -> dict[str, Any]:
    models, prompts = loop.models, loop.eval_prompts
    policy, stop = (
        models.actor_critic.policy,
        stop_ids(models.actor_critic.policy, models.tokenizer),
    )

    def answered(i: int) -> Responses:
        sampling = Sampling(
            loop.settings.max_new_tokens, temperature=loop.settings.temperature, seed=i
        )
        ids = [prompts.ids[i % len(prompts)]]
        return generate(policy, models.tokenizer, ids, sampling, stop=stop)

    def without(i: int) -> int:
        return int(answered(i).lengths[0])

    @torch.no_grad()
    def with_value(i: int) -> int:
        given = answered(i)
        *sequences, _ = sequences_of(given, torch.arange(1))
        models.actor_critic.values(*sequences)
        return int(given.lengths[0])

    found = measure_latency(without, with_value, requests=requests).to_json()
    path = loop.context.workdir / LATENCY_FILE
    path.write_text(json.dumps(found, indent=1))
    loop.context.save_artifact(path, media_type="application/json")
    return {"latency": found}
