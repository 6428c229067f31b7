"""Settings of `ppo`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.optimised import OptimisedSettings
from workers.config.parsing import option


@dataclass(frozen=True, kw_only=True)
class PPOSettings(OptimisedSettings):
    """Proximal policy optimisation. A step is one batch of rollouts and its update epochs."""

    # policy and critic
    critic: str = option(
        "shared",
        "shared: a value head on the policy's own trunk, one forward for both; separate: a model "
        "of its own, at about twice the memory and time, when the value loss disturbs the policy.",
        choices=("shared", "separate"),
    )
    precision: str = option(
        "auto",
        "Of forward and backward passes; weights stay in float32. auto: bfloat16 where a GPU has "
        "it, else float32.",
        choices=("auto", "float32", "bfloat16"),
    )
    # rollouts
    batch_size: int = option(64, "Answers per step.", unit="sequences", minimum=2)
    rollout_chunk: int = option(
        32,
        "Answers drawn at once. While one chunk is drawn the one before is scored. Lower it when "
        "memory runs out while generating.",
        unit="sequences",
        minimum=1,
    )
    # actors (docs/ray.md)
    rollout_workers: int = option(
        0,
        "Ray actors that draw the answers, each with a copy of the policy; 0 draws them here. "
        "Needs the extra 'ray'. Raise it when generation takes most of a step.",
        unit="actors",
        minimum=0,
        maximum=256,
    )
    rollout_lag: int = option(
        0,
        "0: the answers of a step are drawn by the policy that learns from them. 1: those of the "
        "next step are drawn while this one is learned from, by the policy before its update, and "
        "the loss corrects for that; needs rollout_workers.",
        unit="steps",
        minimum=0,
        maximum=1,
    )
    rollout_max_age: int | None = option(
        None,
        "With rollout_lag: answers drawn more optimizer steps ago are thrown away and drawn "
        "afresh; empty allows those of one update.",
        unit="optimizer steps",
        minimum=1,
    )
    importance_cap: float = option(
        2.0,
        "With rollout_lag: the most that a token's loss is multiplied by for being likelier now "
        "than when it was drawn.",
        minimum=1.0,
    )
    reward_workers: int = option(
        0,
        "Ray actors that score the answers, each with the whole reward; 0 scores them here. Raise "
        "it when steps wait for the reward.",
        unit="actors",
        minimum=0,
        maximum=256,
    )
    worker_gpus: float = option(
        0.0,
        "GPUs of each actor: whole ones, or a share of one; 0 draws and scores on processors.",
        unit="GPUs",
        minimum=0.0,
        maximum=8.0,
    )
    worker_timeout: float = option(
        600.0,
        "An actor that takes longer over one chunk of prompts, or its share of the texts to score, "
        "is taken to hang: it is replaced and its work done again. Its start does not count.",
        unit="s",
        minimum=1.0,
    )
    # reward
    reward_clip: float = option(
        5.0, "Normalised scores beyond this are cut.", unit="deviations", above=0.0
    )
    missing_eos_penalty: float = option(
        0.0,
        "Taken from the normalised score of an answer that did not end. Raise it when answers "
        "run into the limit.",
        unit="deviations",
        minimum=0.0,
    )
    length_penalty: float = option(
        0.0,
        "Taken from the normalised score per hundred tokens over length_target. Raise it when "
        "answers grow and people do not like them better.",
        unit="deviations",
        minimum=0.0,
    )
    length_target: int | None = option(
        None,
        "Tokens that cost nothing; the reference's mean length if unset.",
        unit="tokens",
        minimum=1,
    )
    # divergence from the reference
    kl_coef: float = option(
        0.05, "Price of a nat of divergence, in deviations of the reward; 0.01–0.2.", minimum=0.0
    )
    force_zero_kl: bool = option(False, "Needed to run with kl_coef 0.")
    kl_estimator: str = option(
        "k1",
        "Per-token estimator in the reward; k1 is unbiased; full is exact and keeps the whole "
        "vocabulary's logits of policy and reference for a moment.",
        choices=("k1", "k2", "k3", "full"),
    )
    kl_controller: str = option(
        "fixed", "adaptive moves the coefficient towards kl_target.", choices=("fixed", "adaptive")
    )
    kl_target: float = option(6.0, "Of the adaptive controller.", unit="nats/sequence", above=0.0)
    kl_horizon: float | None = option(
        None,
        "Sequences over which the adaptive controller acts; a tenth of the planned ones if unset.",
        unit="sequences",
        above=0.0,
    )
    # update
    steps: int = option(100, "Batches of rollouts.", unit="steps", minimum=1)
    update_epochs: int = option(
        4, "Passes over each batch. Fewer when the clip fraction is over 0.4.", minimum=1
    )
    minibatch_size: int = option(16, "Sequences per optimizer step.", unit="sequences", minimum=1)
    microbatch_size: int | None = option(
        None,
        "Most sequences per forward pass; lower it when memory runs out, the result is the same.",
        unit="sequences",
        minimum=1,
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included, per forward pass: sequences of similar length are "
        "computed together. Lower it when memory runs out; the result is the same.",
        unit="tokens",
        minimum=16,
    )
    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW for the policy. Adapters take about ten times as much. Lower it "
        "when KL or clip fraction jumps.",
        above=0.0,
    )
    value_learning_rate: float | None = option(
        None, "Step size of the critic; ten times the policy's if unset.", above=0.0
    )
    lr_schedule: str = option(
        "linear", "How the step size falls over the run.", choices=("linear", "constant")
    )
    critic_warmup_steps: int = option(
        0,
        "First steps in which the critic alone learns. Raise it when the policy drifts before the "
        "explained variance is over 0.",
        unit="steps",
        minimum=0,
    )
    clip: float = option(0.2, "Ratios further from 1 give no gradient.", above=0.0)
    ratio_limit: float = option(
        10.0, "A minibatch with a ratio over this is skipped and counted.", above=1.0
    )
    value_clip: float | None = option(
        0.2,
        "A value may move this far per update; empty sets no limit.",
        unit="deviations",
        above=0.0,
    )
    value_coef: float = option(0.1, "Weight of the value loss.", minimum=0.0)
    gamma: float = option(
        1.0, "Discount per token; under 1 a long answer forgets its score.", above=0.0, maximum=1.0
    )
    gae_lambda: float = option(
        0.95, "0 trusts the value function, 1 the sampled return.", minimum=0.0, maximum=1.0
    )
    update_kl_target: float = option(
        0.02,
        "KL(old‖new) of an update; past twice this its remaining minibatches are dropped.",
        unit="nats/token",
        above=0.0,
    )
    # guardrails
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {clip_fraction: {threshold: 0.3, action: stop}, "
        "reward_drift: off}. docs/guardrails.md lists rules, thresholds and actions.",
    )
    preflight: bool = option(
        False, "Only look: data, reward, critic, memory; report, train nothing."
    )
    # bookkeeping
    keep_rollouts: int = option(
        1000,
        "Newest answers kept with their scores, versions and seeds, as rollouts.jsonl.",
        unit="answers",
        minimum=0,
        maximum=100_000,
    )
    latency_requests: int = option(
        0,
        "Answers timed at the end, with and without the value head, for p50 and p99; 0 times none.",
        unit="requests",
        minimum=0,
        maximum=10_000,
    )

    @property
    def oldest_rollout(self) -> int:
        """Optimizer steps between an answer and the policy that learns from it, at most."""
        one_update = self.update_epochs * (self.batch_size // self.minibatch_size)
        return (self.rollout_max_age or one_update) if self.rollout_lag else 0

    def check(self) -> list[str]:
        errors = []
        if self.rollout_lag and not self.rollout_workers:
            errors.append("rollout_lag: 1 needs rollout_workers, or nobody draws meanwhile")
        if self.rollout_max_age and not self.rollout_lag:
            errors.append("rollout_max_age: is for rollout_lag 1; nothing is older without it")
        if self.kl_coef == 0 and not self.force_zero_kl:
            errors.append("kl_coef: 0 lets the policy drift; set force_zero_kl to mean it")
        if self.batch_size % self.minibatch_size:
            errors.append("batch_size: must be a multiple of minibatch_size")
        if self.microbatch_size and self.minibatch_size % self.microbatch_size:
            errors.append("minibatch_size: must be a multiple of microbatch_size")
        if self.critic_warmup_steps >= self.steps:
            errors.append("critic_warmup_steps: leaves the policy no step of its own")
        return errors + super().check()
