"""Settings of `ppo`, and what it shares with `grpo`: a policy optimised against a reward."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import Section, option
from workers.config.phrases import phrase_name
from workers.config.precision import PrecisionSettings
from workers.config.rewards import reward_errors
from workers.contract.jobs import BFLOAT16, FLOAT32, INT8

# Fields of every recipe that optimises a policy against a reward: `ppo` and `grpo`.

LONGEST_PHRASE = 60  # characters, as the end of a metric's name


@dataclass(frozen=True, kw_only=True)
class OptimisedSettings(PrecisionSettings):
    """What is drawn, rewarded, watched and kept, however the policy learns from it."""

    # policy
    lora_rank: int = option(
        16,
        "Rank of the low-rank adapters (LoRA) that are trained in place of the weights; switched "
        "off, they leave the reference, so no second copy is kept. 0 trains all weights beside a "
        "frozen copy: for small models, or when adapters do not reach far enough.",
        minimum=0,
        maximum=1024,
        section=Section.MODEL,
    )
    lora_alpha: float = option(
        32.0,
        "Scale of the adapters: their sum counts alpha / rank.",
        above=0.0,
        section=Section.MODEL,
    )
    gradient_checkpointing: str = option(
        "auto",
        "Compute activations twice to keep fewer: about a third slower, far less memory. auto: on "
        "a GPU.",
        choices=("auto", "on", "off"),
        section=Section.MODEL,
    )
    # answers
    max_prompt_length: int = option(
        512,
        "Longer prompts are left out and counted.",
        unit="tokens",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    max_new_tokens: int = option(
        128,
        "Longest answer; what is cut there has no end token.",
        unit="tokens",
        minimum=1,
        section=Section.ROLLOUTS,
        main=True,
    )
    temperature: float = option(
        1.0,
        "Of sampling, and of every log-probability compared with it.",
        above=0.0,
        maximum=5.0,
        section=Section.ROLLOUTS,
    )
    # reward
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "Where rewards come from: {type: model} (input 'reward'), rules, verifiers, a service, or "
        "a weighted sum of these; docs/rewards.md has the grammar. disagreement_threshold beside "
        "{type: model} stands over an ensemble's own.",
        section=Section.REWARD,
        main=True,
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024, section=Section.REWARD
    )
    reward_precision: str = option(
        FLOAT32,
        "Number format in which reward model and judge read answers. Another than float32 needs an "
        "assessment of each that found it to order answers alike (its page says so).",
        choices=(FLOAT32, BFLOAT16, INT8),
        section=Section.REWARD,
    )
    spread_reward: bool = option(
        False,
        "Spread the layers of reward model and judge over all GPUs of the machine, instead of "
        "keeping each whole on every process's own. Needs two GPUs or more, and was not run on any "
        "yet.",
        section=Section.REWARD,
    )
    baseline_answers: int = option(
        4,
        "Answers of the reference to each evaluation prompt before the first step: what calibrated "
        "scores, lengths and alarms are measured against. 0 measures none, and those alarms rest.",
        unit="answers",
        minimum=0,
        maximum=64,
        section=Section.REWARD,
    )
    reference_differs: bool = option(
        False,
        "The input 'reference' is meant to be another model than the starting policy.",
        section=Section.REFERENCE,
    )
    # update
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
        section=Section.UPDATE,
    )
    warmup_share: float = option(
        0.0,
        "Share of the steps over which the step size rises.",
        minimum=0.0,
        maximum=0.5,
        section=Section.UPDATE,
    )
    entropy_coef: float = option(
        0.0,
        "Weight of an entropy bonus. Raise it when entropy collapses.",
        minimum=0.0,
        section=Section.UPDATE,
    )
    max_grad_norm: float = option(
        1.0, "Longer gradients are scaled down to it.", above=0.0, section=Section.UPDATE
    )
    # guardrails
    patience: int | None = option(
        None,
        "Stop and keep after so many evaluations without a better held-out score; empty continues "
        "to the last step.",
        unit="evaluations",
        minimum=1,
        section=Section.GUARDRAILS,
    )
    reward_check: str = option(
        "block",
        "Before the first step: does the reward rank the starting policy's answers over random "
        "tokens? block refuses to train where it does not, warn continues, off does not look.",
        choices=("block", "warn", "off"),
        section=Section.GUARDRAILS,
    )
    minimal: bool = option(
        False,
        "The same configuration in small: few steps, few and short answers, at most a minute. To "
        "reproduce a problem before a long run.",
        section=Section.GUARDRAILS,
    )
    # watching
    refusal_phrases: tuple[str, ...] = option(
        (),
        "Phrases that make an answer a refusal when one stands in its first 200 characters. Empty: "
        "the shipped English list (workers/config/phrases.py). Set it for another language, or "
        "where your assistant refuses in words of its own.",
        section=Section.BOOKKEEPING,
    )
    watch_phrases: tuple[str, ...] = option(
        (),
        "Phrases to count one by one in answers of policy and reference, with what the reward pays "
        "for each. Set those you suspect the reward of liking.",
        section=Section.BOOKKEEPING,
    )
    # bookkeeping
    eval_every: int = option(
        10,
        "Steps between held-out evaluations.",
        unit="steps",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    eval_prompts: int = option(
        32,
        "Fixed prompts answered at each evaluation.",
        unit="prompts",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    save_every: int = option(
        20,
        "Steps between checkpoints; what a crash can cost.",
        unit="steps",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    sample_every: int = option(
        10,
        "Steps between sampled answers for people to read.",
        unit="steps",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    audit_samples: int = option(
        5,
        "Answers of each bucket in the audit: highest, lowest, random.",
        minimum=1,
        section=Section.BOOKKEEPING,
    )

    def check(self) -> list[str]:
        return super().check() + reward_errors(self.reward) + _phrase_errors(self)


def _phrase_errors(settings: OptimisedSettings) -> list[str]:
    """A phrase must hold a word, or nothing would be counted, and its metric a name of its own."""
    errors = [
        f"{name}: '{phrase}' holds no word"
        for name in ("refusal_phrases", "watch_phrases")
        for phrase in getattr(settings, name)
        if not phrase_name(phrase)
    ]
    seen: dict[str, str] = {}
    for phrase in settings.watch_phrases:
        name = phrase_name(phrase)
        if name in seen:
            errors.append(f"watch_phrases: '{phrase}' and '{seen[name]}' would be one metric")
        if len(name) > LONGEST_PHRASE:
            errors.append(f"watch_phrases: '{phrase}' is over {LONGEST_PHRASE} characters long")
        seen[name] = phrase
    return errors


# Settings of `ppo`.


@dataclass(frozen=True, kw_only=True)
class PPOSettings(OptimisedSettings):
    """Proximal policy optimisation. A step is one batch of rollouts and its update epochs."""

    # policy and critic
    critic: str = option(
        "shared",
        "shared: a value head on the policy's own trunk, one forward for both; separate: a model "
        "of its own, at about twice the memory and time, when the value loss disturbs the policy.",
        choices=("shared", "separate"),
        section=Section.MODEL,
    )
    precision: str = option(
        "auto",
        "Of forward and backward passes; weights stay in float32. auto: bfloat16 where a GPU has "
        "it, else float32.",
        choices=("auto", "float32", "bfloat16"),
        section=Section.MODEL,
    )
    # rollouts
    batch_size: int = option(
        64, "Answers per step.", unit="sequences", minimum=2, section=Section.ROLLOUTS, main=True
    )
    rollout_chunk: int = option(
        32,
        "Answers drawn at once. While one chunk is drawn the one before is scored. Lower it when "
        "memory runs out while generating.",
        unit="sequences",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    # actors (docs/ray.md)
    rollout_workers: int = option(
        0,
        "Ray actors that draw the answers, each with a copy of the policy; 0 draws them here. "
        "Needs the extra 'ray'. Raise it when generation takes most of a step.",
        unit="actors",
        minimum=0,
        maximum=256,
        section=Section.ACTORS,
    )
    rollout_lag: int = option(
        0,
        "0: the answers of a step are drawn by the policy that learns from them. 1: those of the "
        "next step are drawn while this one is learned from, by the policy before its update, and "
        "the loss corrects for that; needs rollout_workers.",
        unit="steps",
        minimum=0,
        maximum=1,
        section=Section.ACTORS,
    )
    rollout_max_age: int | None = option(
        None,
        "With rollout_lag: answers drawn more optimizer steps ago are thrown away and drawn "
        "again; empty allows those of one update.",
        unit="optimizer steps",
        minimum=1,
        section=Section.ACTORS,
    )
    importance_cap: float = option(
        2.0,
        "With rollout_lag: the most that a token's loss is multiplied by for being likelier now "
        "than when it was drawn.",
        minimum=1.0,
        section=Section.ACTORS,
    )
    reward_workers: int = option(
        0,
        "Ray actors that score the answers, each with the whole reward; 0 scores them here. Raise "
        "it when steps wait for the reward.",
        unit="actors",
        minimum=0,
        maximum=256,
        section=Section.ACTORS,
    )
    worker_gpus: float = option(
        0.0,
        "GPUs of each actor: whole ones, or a share of one; 0 draws and scores on processors.",
        unit="GPUs",
        minimum=0.0,
        maximum=8.0,
        section=Section.ACTORS,
    )
    worker_timeout: float = option(
        600.0,
        "An actor that takes longer over one chunk of prompts, or its share of the texts to score, "
        "is taken to hang: it is replaced and its work done again. Its start does not count.",
        unit="s",
        minimum=1.0,
        section=Section.ACTORS,
    )
    # reward
    reward_clip: float = option(
        5.0,
        "Normalised scores beyond this are cut.",
        unit="deviations",
        above=0.0,
        section=Section.REWARD,
    )
    missing_eos_penalty: float = option(
        1.0,
        "Taken from the normalised score of an answer that did not end. Raise it when answers "
        "run into the limit; 0 makes cut answers free.",
        unit="deviations",
        minimum=0.0,
        section=Section.REWARD,
    )
    length_penalty: float = option(
        0.0,
        "Taken from the normalised score per hundred tokens over length_target. Raise it when "
        "answers grow and people do not like them better.",
        unit="deviations",
        minimum=0.0,
        section=Section.REWARD,
    )
    length_target: int | None = option(
        None,
        "Tokens that cost nothing; the reference's mean length if unset.",
        unit="tokens",
        minimum=1,
        section=Section.REWARD,
    )
    # divergence from the reference
    kl_coef: float = option(
        0.05,
        "Price of a nat of divergence, in deviations of the reward; 0.01–0.2.",
        minimum=0.0,
        section=Section.REFERENCE,
        main=True,
    )
    force_zero_kl: bool = option(False, "Needed to run with kl_coef 0.", section=Section.REFERENCE)
    kl_estimator: str = option(
        "k1",
        "Per-token estimator in the reward; k1 is unbiased; full is exact and keeps the whole "
        "vocabulary's logits of policy and reference for a moment.",
        choices=("k1", "k2", "k3", "full"),
        section=Section.REFERENCE,
    )
    kl_controller: str = option(
        "fixed",
        "adaptive moves the coefficient towards kl_target.",
        choices=("fixed", "adaptive"),
        section=Section.REFERENCE,
    )
    kl_target: float = option(
        6.0,
        "Of the adaptive controller.",
        unit="nats/sequence",
        above=0.0,
        section=Section.REFERENCE,
    )
    kl_horizon: float | None = option(
        None,
        "Sequences over which the adaptive controller acts; a tenth of the planned ones if unset.",
        unit="sequences",
        above=0.0,
        section=Section.REFERENCE,
    )
    # update
    steps: int = option(
        100, "Batches of rollouts.", unit="steps", minimum=1, section=Section.UPDATE, main=True
    )
    update_epochs: int = option(
        4,
        "Passes over each batch. Fewer when the clip fraction is over 0.4.",
        minimum=1,
        section=Section.UPDATE,
    )
    minibatch_size: int = option(
        16, "Sequences per optimizer step.", unit="sequences", minimum=1, section=Section.UPDATE
    )
    microbatch_size: int | None = option(
        None,
        "Most sequences per forward pass; lower it when memory runs out, the result is the same.",
        unit="sequences",
        minimum=1,
        section=Section.UPDATE,
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included, per forward pass; on a GPU sequences of similar length are "
        "computed together. Lower it when memory runs out; the result is the same.",
        unit="tokens",
        minimum=16,
        section=Section.UPDATE,
    )
    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW for the policy. Adapters take about ten times as much. Lower it "
        "when KL or clip fraction jumps.",
        above=0.0,
        section=Section.UPDATE,
        main=True,
        chosen=True,
    )
    value_learning_rate: float | None = option(
        None,
        "Step size of the critic; ten times the policy's if unset.",
        above=0.0,
        section=Section.UPDATE,
    )
    lr_schedule: str = option(
        "linear",
        "How the step size falls over the run.",
        choices=("linear", "constant"),
        section=Section.UPDATE,
    )
    critic_warmup_steps: int = option(
        0,
        "First steps in which the critic alone learns. Raise it when the policy drifts before the "
        "explained variance is over 0.",
        unit="steps",
        minimum=0,
        section=Section.UPDATE,
    )
    clip: float = option(
        0.2, "Ratios further from 1 give no gradient.", above=0.0, section=Section.UPDATE
    )
    ratio_limit: float = option(
        10.0,
        "A minibatch with a ratio over this is skipped and counted.",
        above=1.0,
        section=Section.UPDATE,
    )
    value_clip: float | None = option(
        0.2,
        "A value may move this far per update; empty sets no limit.",
        unit="deviations",
        above=0.0,
        section=Section.UPDATE,
    )
    value_coef: float = option(
        0.1, "Weight of the value loss.", minimum=0.0, section=Section.UPDATE
    )
    gamma: float = option(
        1.0,
        "Discount per token; under 1 a long answer forgets its score.",
        above=0.0,
        maximum=1.0,
        section=Section.UPDATE,
    )
    gae_lambda: float = option(
        0.95,
        "0 trusts the value function, 1 the sampled return.",
        minimum=0.0,
        maximum=1.0,
        section=Section.UPDATE,
    )
    update_kl_target: float = option(
        0.02,
        "KL(old‖new) of an update; past twice this its remaining minibatches are dropped.",
        unit="nats/token",
        above=0.0,
        section=Section.UPDATE,
    )
    # guardrails
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {clip_fraction: {threshold: 0.3, action: stop}, "
        "reward_drift: off}. docs/guardrails.md lists rules, thresholds and actions.",
        section=Section.GUARDRAILS,
    )
    preflight: bool = option(
        False,
        "Only look: data, reward, critic, memory; report, train nothing.",
        section=Section.GUARDRAILS,
    )
    # bookkeeping
    keep_rollouts: int = option(
        1000,
        "Newest answers kept with their scores, versions and seeds, as rollouts.jsonl.",
        unit="answers",
        minimum=0,
        maximum=100_000,
        section=Section.BOOKKEEPING,
    )
    latency_requests: int = option(
        0,
        "Answers timed at the end, with and without the value head, for p50 and p99; 0 times none.",
        unit="requests",
        minimum=0,
        maximum=10_000,
        section=Section.BOOKKEEPING,
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
        if self.spread_reward and self.reward_workers:
            errors.append("spread_reward: reward_workers hold whole rewards; use one of the two")
        if self.base_4bit and self.rollout_workers:
            errors.append("base_4bit: rollout_workers hold the policy in float32; set them to 0")
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
