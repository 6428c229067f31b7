"""Settings of `grpo`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.recipes.settings.parsing import option
from workers.recipes.settings.rewards import reward_errors


@dataclass(frozen=True, kw_only=True)
class GRPOSettings:
    """Group-relative policy optimisation: answers to one prompt are judged by each other, and no
    critic is trained. A step is one optimizer step."""

    # policy
    lora_rank: int = option(
        16,
        "Rank of the low-rank adapters (LoRA) that are trained in place of the weights; switched "
        "off, they leave the reference, so no second copy is kept. 0 trains all weights beside a "
        "frozen copy: for small models, or when adapters do not reach far enough.",
        minimum=0,
        maximum=1024,
    )
    lora_alpha: float = option(
        32.0, "Scale of the adapters: their sum counts alpha / rank.", above=0.0
    )
    gradient_checkpointing: str = option(
        "auto",
        "Compute activations twice to keep fewer: about a third slower, far less memory. auto: on "
        "a GPU.",
        choices=("auto", "on", "off"),
    )
    # groups of answers
    group_size: int = option(
        8,
        "Answers to each prompt. Each is compared with the mean of its group: fewer make that mean "
        "noisy, more find differences where most answers get the same reward.",
        unit="answers",
        minimum=2,
        maximum=256,
    )
    batch_size: int = option(
        64, "Answers per step; a multiple of group_size.", unit="sequences", minimum=2
    )
    rollout_chunk: int = option(
        64,
        "Answers drawn at once. Lower it when memory runs out while generating; other answers are "
        "drawn then.",
        unit="sequences",
        minimum=1,
    )
    max_prompt_length: int = option(
        512, "Longer prompts are left out and counted.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(
        128, "Longest answer; what is cut there has no end token.", unit="tokens", minimum=1
    )
    temperature: float = option(
        1.0, "Of sampling, and of every log-probability compared with it.", above=0.0, maximum=5.0
    )
    # reward
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "Where rewards come from: {type: model} (input 'reward'), rules, verifiers, a service, or "
        "a weighted sum of these; docs/rewards.md has the grammar. disagreement_threshold beside "
        "{type: model} stands over an ensemble's own.",
    )
    verifier: Mapping[str, Any] | None = option(
        None,
        "A source of the same grammar that is only asked, never optimised: how far it orders the "
        "answers of a group as the reward does is reported. The input 'judge' goes before it.",
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024
    )
    missing_eos_penalty: float = option(
        0.0,
        "Taken from the reward of an answer that did not end. Raise it when answers run into the "
        "limit.",
        unit="raw score",
        minimum=0.0,
    )
    mask_truncated: bool = option(
        False,
        "Answers that did not end teach nothing. For when the limit cuts good answers; it hides a "
        "policy that never ends, so watch the share that ended.",
    )
    scale_rewards: str = option(
        "group",
        "What an answer's distance from its group's mean is divided by. group: its group's "
        "standard deviation, so easy and hard prompts count alike; batch: that of all answers of "
        "the step; none: nothing, so groups with a larger spread count more.",
        choices=("group", "batch", "none"),
    )
    baseline_answers: int = option(
        4,
        "Answers of the reference to each evaluation prompt before the first step: what calibrated "
        "scores, lengths and alarms are measured against. 0 measures none, and those alarms rest.",
        unit="answers",
        minimum=0,
        maximum=64,
    )
    # divergence from the reference
    kl_coef: float = option(
        0.04,
        "Price of a nat of divergence per token, in the loss (β). 0.001–0.1; lower it for "
        "verifiers, which cannot be fooled as reward models can.",
        minimum=0.0,
    )
    force_zero_kl: bool = option(
        False, "Needed to run with kl_coef 0; the divergence is measured all the same."
    )
    reference_differs: bool = option(
        False, "The input 'reference' is meant to be another model than the starting policy."
    )
    # update
    steps: int = option(100, "Optimizer steps.", unit="steps", minimum=1)
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
    )
    update_epochs: int = option(
        1,
        "Steps that learn from one batch of answers before new ones are drawn. Over 1 costs less "
        "generation and moves further from the policy that drew them.",
        unit="steps",
        minimum=1,
        maximum=16,
    )
    microbatch_size: int | None = option(
        None,
        "Sequences per forward pass; lower it when memory runs out, the result is the same.",
        unit="sequences",
        minimum=1,
    )
    loss_type: str = option(
        "dapo",
        "How tokens are weighed. dapo: every token of the step alike; grpo: every answer alike, "
        "which prefers short right and long wrong answers; dr_grpo: tokens over the longest "
        "possible answer; bnpo: as dapo, within a forward pass.",
        choices=("dapo", "grpo", "dr_grpo", "bnpo"),
    )
    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW. Right for adapters; all weights (lora_rank 0) take about a "
        "tenth. Lower it when KL or clip fraction jumps.",
        above=0.0,
    )
    lr_schedule: str = option(
        "linear", "How the step size falls afterwards.", choices=("linear", "cosine", "constant")
    )
    warmup_share: float = option(
        0.0, "Share of the steps over which the step size rises.", minimum=0.0, maximum=0.5
    )
    weight_decay: float = option(0.0, "AdamW's weight decay.", minimum=0.0)
    clip: float = option(0.2, "Ratios further from 1 give no gradient.", above=0.0, maximum=1.0)
    clip_high: float | None = option(
        None,
        "The upper bound's own distance; `clip` if unset. 0.28 lets unlikely tokens grow (DAPO).",
        above=0.0,
    )
    entropy_coef: float = option(
        0.0, "Weight of an entropy bonus. Raise it when entropy collapses.", minimum=0.0
    )
    max_grad_norm: float = option(1.0, "Longer gradients are scaled down to it.", above=0.0)
    # guardrails
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {zero_variance: {threshold: 0.9, action: stop}, "
        "length: off}. docs/guardrails.md lists rules, thresholds and actions.",
    )
    patience: int | None = option(
        None,
        "Stop and keep after so many evaluations without a better held-out score; empty goes on "
        "to the last step.",
        unit="evaluations",
        minimum=1,
    )
    reward_check: str = option(
        "block",
        "Before the first step: does the reward rank the starting policy's answers over random "
        "tokens? block refuses to train where it does not, warn goes on, off does not look.",
        choices=("block", "warn", "off"),
    )
    preflight: bool = option(False, "Only look: data, reward, memory; report, train nothing.")
    minimal: bool = option(
        False,
        "The same configuration in small: few steps, few and short answers, at most a minute. To "
        "reproduce a trouble before a long run.",
    )
    # bookkeeping
    log_every: int = option(1, "Steps between metric points.", unit="steps", minimum=1)
    eval_every: int = option(10, "Steps between held-out evaluations.", unit="steps", minimum=1)
    eval_prompts: int = option(
        32, "Fixed prompts answered at each evaluation.", unit="prompts", minimum=1
    )
    save_every: int = option(
        20, "Steps between checkpoints; what a crash can cost.", unit="steps", minimum=1
    )
    sample_every: int = option(
        10, "Steps between sampled answers for people to read.", unit="steps", minimum=1
    )
    audit_samples: int = option(
        5, "Answers of each bucket in the audit: highest, lowest, random.", minimum=1
    )

    def check(self) -> list[str]:
        errors = []
        if self.kl_coef == 0 and not self.force_zero_kl:
            errors.append("kl_coef: 0 lets the policy drift; set force_zero_kl to mean it")
        if self.batch_size % self.group_size:
            errors.append(
                f"batch_size: {self.batch_size} answers are no whole number of groups; it must be "
                f"a multiple of group_size, {self.group_size}"
            )
        if self.microbatch_size and self.batch_size % self.microbatch_size:
            errors.append("microbatch_size: batch_size must be a multiple of it")
        for name in ("eval_every", "save_every"):
            if getattr(self, name) % self.update_epochs:
                errors.append(
                    f"{name}: must be a multiple of update_epochs, {self.update_epochs}: only "
                    "between batches of answers can a run be resumed exactly"
                )
        if self.verifier is not None:
            errors += [
                text.replace("reward", "verifier", 1) for text in reward_errors(self.verifier)
            ]
            if self.verifier.get("type") == "model":
                errors.append("verifier.type: a model that is only asked is the input 'judge'")
        return errors + reward_errors(self.reward)

    # What the trainer reads of every recipe's settings, under the names they have elsewhere.

    @property
    def gradient_accumulation(self) -> int:
        return self.batch_size // (self.microbatch_size or self.batch_size)

    @property
    def max_steps(self) -> int:
        return self.steps

    @property
    def epochs(self) -> float:
        """The order of prompts has no end; `steps` says when to stop."""
        return 1.0
