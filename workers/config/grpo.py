"""Settings of `grpo`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import Section, option
from workers.config.policy import OptimisedSettings
from workers.config.rewards import FINAL_STATE, reward_errors, verifiers_by

NO_ENVIRONMENT, CALCULATOR, FILES = "none", "calculator", "files"
OWN_TEMPLATE, PLAIN_TEMPLATE = "model", "plain"


@dataclass(frozen=True, kw_only=True)
class GRPOSettings(OptimisedSettings):
    """Group-relative policy optimisation: answers to one prompt are judged by each other, and no
    critic is trained. A step is one optimizer step."""

    # groups of answers
    group_size: int = option(
        8,
        "Answers to each prompt. Each is compared with the mean of its group: fewer make that mean "
        "noisy, more find differences where most answers get the same reward.",
        unit="answers",
        minimum=2,
        maximum=256,
        section=Section.ROLLOUTS,
        main=True,
    )
    batch_size: int = option(
        64,
        "Answers per step; a multiple of group_size.",
        unit="sequences",
        minimum=2,
        section=Section.ROLLOUTS,
        main=True,
    )
    rollout_chunk: int = option(
        64,
        "Answers drawn at once. Lower it when memory runs out while generating; other answers are "
        "drawn then.",
        unit="sequences",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    rollout_engine: str = option(
        "transformers",
        "What draws the answers that the policy learns from. vllm: a vLLM on the same GPU, given "
        "the policy's weights before each batch of answers; its rounding is corrected for by "
        "importance_cap. Needs a GPU and the package vllm on the worker, and was run on "
        "processors alone so far.",
        choices=("transformers", "vllm"),
        section=Section.ROLLOUTS,
    )
    vllm_memory: float = option(
        0.3,
        "With rollout_engine vllm: the share of the GPU's memory that it takes for its weights and "
        "its cache while it draws. Raise it when it draws few answers at once.",
        above=0.0,
        maximum=0.95,
        section=Section.ROLLOUTS,
    )
    importance_cap: float = option(
        2.0,
        "With rollout_engine vllm: the most that a token's loss is multiplied by for being "
        "likelier to the policy than to the vLLM that drew it.",
        minimum=1.0,
        section=Section.ROLLOUTS,
    )
    # tools
    environment: str = option(
        NO_ENVIRONMENT,
        "The world in which the policy acts by calling tools, over several turns. calculator: "
        "arithmetic; files: a store of texts in memory, with the calculator. The prompts are tasks "
        "whose check is a final_state; max_new_tokens is then for all turns of an answer, results "
        "of tools included, and what tools wrote is never learnt.",
        choices=(NO_ENVIRONMENT, CALCULATOR, FILES),
        section=Section.ROLLOUTS,
    )
    max_tool_rounds: int = option(
        8,
        "With an environment: how often the tools answer before the policy must end. A policy that "
        "still calls them then has no end.",
        unit="rounds",
        minimum=1,
        maximum=64,
        section=Section.ROLLOUTS,
    )
    tool_template: str = option(
        OWN_TEMPLATE,
        "With an environment: how tools, calls and results are written. model: by the model's own "
        "chat template, which must know tools; plain: by a small template of Concord's, which "
        "stays with the checkpoints. For models whose template knows no tools.",
        choices=(OWN_TEMPLATE, PLAIN_TEMPLATE),
        section=Section.ROLLOUTS,
    )
    # reward
    verifier: Mapping[str, Any] | None = option(
        None,
        "A source of the same grammar that is only asked, never optimised: how far it orders the "
        "answers of a group as the reward does is reported. The input 'judge' goes before it.",
        section=Section.REWARD,
    )
    missing_eos_penalty: float = option(
        1.0,
        "Taken off the advantage of an answer that did not end, after rewards are compared within "
        "their group. Raise it when answers run into the limit; 0 makes cut answers free.",
        unit="deviations",
        minimum=0.0,
        section=Section.REWARD,
    )
    mask_truncated: bool = option(
        False,
        "Answers that did not end teach nothing. For when the limit cuts good answers; it hides a "
        "policy that never ends, so watch the share that ended.",
        section=Section.REWARD,
    )
    scale_rewards: str = option(
        "group",
        "What an answer's distance from its group's mean is divided by. group: its group's "
        "standard deviation, so easy and hard prompts count alike; batch: that of all answers of "
        "the step; none: nothing, so groups with a larger spread count more.",
        choices=("group", "batch", "none"),
        section=Section.REWARD,
    )
    # divergence from the reference
    kl_coef: float = option(
        0.04,
        "Price of a nat of divergence per token, in the loss (β). 0.001–0.1; lower it for "
        "verifiers, which cannot be fooled as reward models can.",
        minimum=0.0,
        section=Section.REFERENCE,
        main=True,
    )
    force_zero_kl: bool = option(
        False,
        "Needed to run with kl_coef 0; the divergence is measured all the same.",
        section=Section.REFERENCE,
    )
    # update
    steps: int = option(
        100, "Optimizer steps.", unit="steps", minimum=1, section=Section.UPDATE, main=True
    )
    update_epochs: int = option(
        1,
        "Steps that learn from one batch of answers before new ones are drawn. Over 1 costs less "
        "generation and moves further from the policy that drew them.",
        unit="steps",
        minimum=1,
        maximum=16,
        section=Section.UPDATE,
    )
    microbatch_size: int | None = option(
        None,
        "Sequences per forward pass; lower it when memory runs out, the result is the same.",
        unit="sequences",
        minimum=1,
        section=Section.UPDATE,
    )
    loss_type: str = option(
        "dapo",
        "How tokens are weighed. dapo: every token of the step alike; grpo: every answer alike, "
        "which prefers short right and long wrong answers; dr_grpo: tokens over the longest "
        "possible answer; bnpo: as dapo, within a forward pass. rloo is REINFORCE leave-one-out: "
        "an answer against the mean of the others of its group, the ratio of the whole answer, and "
        "kl_coef per sequence, taken off the reward; set scale_rewards to none with it.",
        choices=("dapo", "grpo", "dr_grpo", "bnpo", "rloo"),
        section=Section.UPDATE,
    )
    importance_sampling_level: str = option(
        "token",
        "What is compared with the policy that drew, and clipped. token: each token; sequence: the "
        "mean of an answer's log-ratios, which is GSPO: steadier with long answers and experts, "
        "with `clip` a hundred times smaller (preset gspo). No difference with update_epochs 1.",
        choices=("token", "sequence"),
        section=Section.UPDATE,
    )
    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW. Right for adapters; all weights (lora_rank 0) take about a "
        "tenth. Lower it when KL or clip fraction jumps.",
        above=0.0,
        section=Section.UPDATE,
        main=True,
        chosen=True,
    )
    lr_schedule: str = option(
        "linear",
        "How the step size falls afterwards.",
        choices=("linear", "cosine", "constant"),
        section=Section.UPDATE,
    )
    weight_decay: float = option(0.0, "AdamW's weight decay.", minimum=0.0, section=Section.UPDATE)
    clip: float = option(
        0.2,
        "Ratios further from 1 give no gradient.",
        above=0.0,
        maximum=1.0,
        section=Section.UPDATE,
    )
    clip_high: float | None = option(
        None,
        "The upper bound's own distance; `clip` if unset. 0.28 lets unlikely tokens grow (DAPO).",
        above=0.0,
        section=Section.UPDATE,
    )
    # guardrails
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {zero_variance: {threshold: 0.9, action: stop}, "
        "length: off}. docs/guardrails.md lists rules, thresholds and actions.",
        section=Section.GUARDRAILS,
    )
    preflight: bool = option(
        False, "Only look: data, reward, memory; report, train nothing.", section=Section.GUARDRAILS
    )
    # bookkeeping
    log_every: int = option(
        1, "Steps between metric points.", unit="steps", minimum=1, section=Section.BOOKKEEPING
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
        if self.loss_type == "rloo":
            if self.importance_sampling_level != "token":
                errors.append(
                    "importance_sampling_level: rloo compares whole answers by itself, by the sum "
                    "of their log-ratios; leave it at token"
                )
            if self.rollout_engine == "vllm":
                errors.append(
                    "rollout_engine: rloo has no correction for what another engine drew; leave it "
                    "at transformers, or take another loss_type"
                )
            if self.entropy_coef:
                errors.append("entropy_coef: rloo has no entropy bonus; leave it at 0")
        if self.rollout_engine == "vllm" and self.base_4bit:
            errors.append("rollout_engine: vllm draws with whole weights; switch base_4bit off")
        errors += self._tool_errors()
        if self.verifier is not None:
            errors += [
                text.replace("reward", "verifier", 1) for text in reward_errors(self.verifier)
            ]
            if self.verifier.get("type") == "model":
                errors.append("verifier.type: a model that is only asked is the input 'judge'")
        return errors + super().check()

    @property
    def with_tools(self) -> bool:
        return self.environment != NO_ENVIRONMENT

    def _tool_errors(self) -> list[str]:
        if self.with_tools:
            if self.rollout_engine == "vllm":
                return ["rollout_engine: vllm calls no tools here; leave it at transformers"]
            return []
        return [
            f"{path}: a final state is that of an environment; choose one"
            for name in ("reward", "verifier")
            if (source := getattr(self, name)) and not reward_errors(source)
            for path in verifiers_by(FINAL_STATE, source, name)
        ]

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
