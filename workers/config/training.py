"""Settings of the trainings on fixed rows: `sft`, `reward`, `process_reward`, `dpo`, `kto`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import Section, option
from workers.config.precision import PrecisionSettings

# Fields that every training recipe has.


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(PrecisionSettings):
    """Optimisation, schedule, bookkeeping. A step is one optimizer step."""

    learning_rate: float = option(
        1e-5,
        "Peak step size of AdamW. Lower it when loss or KL jumps, raise it when nothing moves.",
        above=0.0,
        section=Section.UPDATE,
        main=True,
        chosen=True,
    )
    batch_size: int = option(
        32,
        "Rows per step. Larger is steadier and slower per step.",
        unit="rows",
        minimum=1,
        section=Section.ROLLOUTS,
        main=True,
    )
    gradient_accumulation: int = option(
        1,
        "Parts a batch is computed in. Raise it when memory runs out; the result is the same.",
        minimum=1,
        section=Section.UPDATE,
    )
    epochs: float = option(
        1.0,
        "Passes over the training rows. Preferences overfit after one or two.",
        above=0.0,
        section=Section.UPDATE,
        main=True,
    )
    max_steps: int | None = option(
        None,
        "Stop after so many steps whatever `epochs` says.",
        unit="steps",
        minimum=1,
        section=Section.UPDATE,
        main=True,
    )
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
        section=Section.UPDATE,
    )
    warmup_share: float = option(
        0.05,
        "Share of the steps over which the step size rises.",
        minimum=0.0,
        maximum=0.5,
        section=Section.UPDATE,
    )
    lr_schedule: str = option(
        "linear",
        "How the step size falls afterwards.",
        choices=("linear", "cosine", "constant"),
        section=Section.UPDATE,
    )
    weight_decay: float = option(0.0, "AdamW's weight decay.", minimum=0.0, section=Section.UPDATE)
    max_grad_norm: float = option(
        1.0, "Gradients longer than this are scaled down to it.", above=0.0, section=Section.UPDATE
    )
    max_length: int = option(
        1024,
        "Longest sequence, prompt and response together; the rest is cut and counted.",
        unit="tokens",
        minimum=8,
        section=Section.DATA,
        main=True,
    )
    log_every: int = option(
        10, "Steps between metric points.", unit="steps", minimum=1, section=Section.BOOKKEEPING
    )
    eval_every: int = option(
        50, "Steps between evaluations.", unit="steps", minimum=1, section=Section.BOOKKEEPING
    )
    save_every: int = option(
        100,
        "Steps between checkpoints; what a crash can cost.",
        unit="steps",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    preflight: bool = option(
        False,
        "Only look: rows, overlaps, lengths, memory; report, train nothing.",
        section=Section.GUARDRAILS,
    )
    minimal: bool = option(
        False,
        "The same configuration in small: a few steps of a few rows, at most a minute. To "
        "reproduce a problem before a long run.",
        section=Section.GUARDRAILS,
    )
    guards: Mapping[str, Any] = option(
        {},
        "Changes to the guardrails, by rule: {gradient: {threshold: 20, action: adjust}, "
        "held_out_loss: stop}. docs/guardrails.md lists rules, thresholds and actions.",
        section=Section.GUARDRAILS,
    )


# Fields of the trainings of language models by imitation or by pairs: what fits into memory.


@dataclass(frozen=True, kw_only=True)
class AdaptedSettings(TrainingSettings):
    """`sft`, `dpo` and `kto`."""

    lora_rank: int = option(
        0,
        "Rank of low-rank adapters (LoRA) trained in place of the weights; 0 trains the weights. "
        "8–32 for models that do not fit the memory otherwise; ten times the learning rate then.",
        minimum=0,
        maximum=1024,
        section=Section.MODEL,
    )
    lora_alpha: float = option(
        32.0,
        "Scale of the adapters: their sum counts alpha / rank. Leave it at twice the rank.",
        above=0.0,
        section=Section.MODEL,
    )
    gradient_checkpointing: bool = option(
        False,
        "Compute activations twice to keep fewer: about a third slower, far less memory.",
        section=Section.MODEL,
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included, that are computed at once. A step is split to stay under "
        "it; the result is the same. Set it when memory runs out, and on accelerators: 8,000–"
        "32,000 keep one busy.",
        unit="tokens",
        minimum=16,
        section=Section.UPDATE,
    )


# Settings of `sft`.


@dataclass(frozen=True, kw_only=True)
class SFTSettings(AdaptedSettings):
    """Supervised fine-tuning on demonstrations; the loss is on the assistant's answers only."""

    base_model: str | None = option(
        None,
        "Hub id or folder of the model to start from, when no checkpoint is an input.",
        section=Section.MODEL,
    )
    toy: bool = option(
        False,
        "Without a model to start from, build a small one from the demonstrations. It shows that "
        "everything works, and writes no text that is worth reading.",
        section=Section.MODEL,
        main=True,
    )
    packing: bool = option(
        False,
        "Several demonstrations share a row of at most `max_length` tokens in place of padding, "
        "without seeing each other: the same steps and the same result in fewer tokens. Pays where "
        "lengths differ much.",
        section=Section.MEMORY,
    )
    loss_type: str = option(
        "nll",
        "TRL's loss: nll imitates every token alike; dft counts a token by its present likelihood, "
        "which unlearns less of what a pretrained model knows and learns little from scratch.",
        choices=("nll", "dft"),
        section=Section.REFERENCE,
    )
    train_on: str = option(
        "all",
        "Which answers of a conversation are learnt: all of the assistant's, or the last alone.",
        choices=("all", "last"),
        section=Section.DATA,
        main=True,
    )
    overlong: str = option(
        "drop",
        "What to do with rows longer than `max_length`: a cut answer teaches not to end.",
        choices=("drop", "truncate"),
        section=Section.DATA,
    )
    held_out_share: float = option(
        0.05,
        "Share of the rows kept for the held-out loss, when the snapshot has no evaluation file.",
        minimum=0.0,
        maximum=0.5,
        section=Section.DATA,
    )
    sample_prompts: int = option(
        16,
        "Held-out prompts answered at each evaluation, to see how it behaves and for people to "
        "read.",
        unit="prompts",
        minimum=0,
        section=Section.BOOKKEEPING,
    )
    sample_max_new_tokens: int = option(
        64, "Longest sampled answer.", unit="tokens", minimum=1, section=Section.BOOKKEEPING
    )
    imitation_prompts: int = option(
        64,
        "Held-out prompts answered at the end to compare length, refusals and format with the "
        "demonstrations. More give narrower intervals; 0 compares nothing.",
        unit="prompts",
        minimum=0,
        section=Section.BOOKKEEPING,
    )
    imitation_max_new_tokens: int | None = option(
        None,
        "Where those answers, and the demonstrations beside them, are cut. Unset: twice what nine "
        "of ten demonstrations need, as far as the model can read.",
        unit="tokens",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    base_vocabulary: int = option(
        2048,
        "Size of the tokenizer that is built when there is no base model.",
        unit="tokens",
        minimum=300,
        section=Section.MODEL,
    )
    base_width: int = option(
        128, "Hidden size of the model built then.", minimum=8, section=Section.MODEL
    )
    base_layers: int = option(
        4, "Layers of the model built then.", minimum=1, section=Section.MODEL
    )
    base_heads: int = option(
        4, "Attention heads of the model built then.", minimum=1, section=Section.MODEL
    )
    base_context: int = option(
        256,
        "Longest sequence the model built then can read; `max_length` is at most this much then.",
        unit="tokens",
        minimum=16,
        section=Section.MODEL,
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.base_width % (2 * self.base_heads):
            errors.append("base_width: must be a multiple of twice base_heads (rotary positions)")
        if self.packing and self.attention == "flash_attention_2":
            errors.append("packing: was not run with flash_attention_2; leave attention at auto")
        if self.packing and self.liger:
            errors.append("packing: was not run with the kernels of liger; switch one of them off")
        return errors


# Settings of `reward` and `dpo`, which learn from pairs.


@dataclass(frozen=True, kw_only=True)
class RewardSettings(TrainingSettings):
    """A Bradley–Terry reward model."""

    base_model: str | None = option(
        None,
        "Hub id or folder of the model to start from, when no checkpoint is an input.",
        section=Section.MODEL,
    )
    labels: str = option(
        "hard",
        "hard: the chosen answer wins; soft: it wins with the row's confidence.",
        choices=("hard", "soft"),
        section=Section.DATA,
        main=True,
    )
    use_weights: bool = option(True, "Whether rows count by their weight.", section=Section.DATA)
    center_coef: float = option(
        0.0,
        "Weight of (r_chosen + r_rejected)², which keeps scores around 0. About 0.01 if used.",
        minimum=0.0,
        section=Section.REFERENCE,
    )
    dropout: float = option(
        0.0,
        "Dropout while training, where the model has it.",
        minimum=0.0,
        maximum=0.9,
        section=Section.MODEL,
    )
    label_smoothing: float = option(
        0.0,
        "Share of labels held to be flipped; 0.05–0.1 where annotators often err.",
        minimum=0.0,
        maximum=0.49,
        section=Section.REFERENCE,
    )
    margin_coef: float = option(
        0.0,
        "Score distance asked per grade of a row's `strength` (1 better, 2 far better); 0 asks "
        "none. Rows without a grade ask none.",
        minimum=0.0,
        section=Section.REFERENCE,
    )
    lora_rank: int = option(
        0,
        "Rank of low-rank adapters (LoRA) trained in place of the weights; 0 trains the weights. "
        "8–32 for models that do not fit the memory otherwise; the score head trains whole.",
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
    head_only: bool = option(
        False,
        "Train the score head alone (with the pooler that some encoders have), on the embeddings "
        "of a body that stays as it is: a third of the time, and less is learnt.",
        section=Section.MODEL,
    )
    gradient_checkpointing: bool = option(
        False,
        "Compute activations twice to keep fewer: about a third slower, far less memory.",
        section=Section.MODEL,
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included and both answers counted, that are computed at once. A "
        "step is split to stay under it; the result is the same. Set it when memory runs out.",
        unit="tokens",
        minimum=16,
        section=Section.UPDATE,
    )
    sampling: str = option(
        "all",
        "all: every pair once a pass; stratified: the same, each step with its share of every "
        "group and length; inverse_frequency: pairs of rare groups as often as of large ones.",
        choices=("all", "stratified", "inverse_frequency"),
        section=Section.DATA,
    )
    recency_half_life_days: float | None = option(
        None,
        "Age at which a pair counts half as much as the newest one; needs `decided_at` in every "
        "training row.",
        unit="days",
        above=0.0,
        section=Section.DATA,
    )
    date_input: str = option(
        "none",
        "Whether the model reads when a pair was decided, as a line before the first message: "
        "year, quarter or month. Scores are given as of the newest training row, by whatever uses "
        "the saved template. Needs `decided_at` in every training row.",
        choices=("none", "year", "quarter", "month"),
        section=Section.DATA,
    )
    hard_weight: float = option(
        1.0,
        "How much a pair of the input 'hard' (adversarial pairs) counts beside one of 'data'.",
        above=0.0,
        maximum=100.0,
        section=Section.DATA,
    )
    on_overlong: str = option(
        "truncate",
        "Training pairs longer than max_length: truncate, drop (as TRL does, silently), or fail.",
        choices=("truncate", "drop", "fail"),
        section=Section.DATA,
    )
    patience: int | None = option(
        None,
        "Stop after so many evaluations without a lower held-out loss, and keep the weights of "
        "the lowest. Empty trains to the end and keeps the last ones.",
        unit="evaluations",
        minimum=1,
        section=Section.GUARDRAILS,
    )
    min_delta: float = option(
        0.0,
        "A held-out loss counts as lower from this distance on.",
        unit="nats",
        minimum=0.0,
        section=Section.GUARDRAILS,
    )
    folds: int = option(
        0,
        "Cross-validation: so many models are trained first, each tested on annotators (where "
        "rows name them; else groups or prompts) it did not see. 0: none; 5 costs five trainings "
        "more.",
        unit="folds",
        minimum=0,
        maximum=20,
        section=Section.DATA,
    )
    members: int = option(
        1,
        "Models of an ensemble, trained one after another; their disagreement tells which "
        "answers not to trust. 1: a single model.",
        unit="models",
        minimum=1,
        maximum=20,
        section=Section.MODEL,
    )
    member_split: str = option(
        "bootstrap",
        "How members differ besides their seed: kfold leaves another part out for each, "
        "bootstrap draws pairs with replacement, seed trains all on the same pairs.",
        choices=("kfold", "bootstrap", "seed"),
        section=Section.MODEL,
    )
    aggregate: str = option(
        "mean",
        "How the members' scores become one.",
        choices=("mean", "min", "median", "mean_minus_lambda_var", "mean_minus_lambda_std"),
        section=Section.MODEL,
    )
    disagreement_coef: float = option(
        1.0, "λ of the aggregates that subtract disagreement.", minimum=0.0, section=Section.MODEL
    )
    preflight: bool = option(
        False,
        "Only look: count, estimate and report what a run would do, train nothing.",
        section=Section.GUARDRAILS,
    )
    bootstrap_replicates: int = option(
        1000,
        "Resamples behind each interval.",
        minimum=100,
        maximum=100_000,
        section=Section.BOOKKEEPING,
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.folds == 1:
            errors.append("folds: 1 is no cross-validation; 0 or at least 2")
        if self.head_only and self.lora_rank:
            errors.append("head_only: adapters (lora_rank) would train the body; choose one")
        return errors


# TRL's losses of pairs. Those of the second group compare the pairs of a step with each other.
_BY_PAIR = (
    "sigmoid",
    "ipo",
    "hinge",
    "robust",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
)
_BY_STEP = ("aot", "aot_unpaired")
_SMOOTHED = ("robust", "exo_pair", *_BY_STEP)
REFERENCE_FREE = ("simpo", "orpo")  # of TRL's experimental trainers


# Settings of `dpo` and `kto`, whose policy is held to a reference.


@dataclass(frozen=True, kw_only=True)
class SampledSettings(AdaptedSettings):
    """What is sampled while a policy learns from fixed rows."""

    sample_prompts: int = option(
        16,
        "Held-out prompts answered at each evaluation, for the KL and for people to read.",
        unit="prompts",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    sample_max_new_tokens: int = option(
        64, "Longest sampled answer.", unit="tokens", minimum=1, section=Section.BOOKKEEPING
    )


@dataclass(frozen=True, kw_only=True)
class DPOSettings(SampledSettings):
    """Direct preference optimisation, against the SFT model as the reference."""

    beta: float = option(
        0.1,
        "How strongly the policy is held to the reference; 0.01–0.5. Raise it when the KL runs "
        "away, lower it when nothing moves. With ipo it is τ; with simpo the scale of the margin, "
        "2–10; with orpo the weight λ of the odds ratio, about 0.1.",
        above=0.0,
        section=Section.REFERENCE,
        main=True,
    )
    loss_type: str = option(
        "sigmoid",
        "TRL's loss: sigmoid is DPO, ipo does not overfit sure labels, robust expects flips. simpo "
        "and orpo ask no reference while training; they are experimental in TRL, and may change. "
        "What each of them is for is in docs/dpo.md.",
        choices=_BY_PAIR + _BY_STEP + REFERENCE_FREE,
        section=Section.REFERENCE,
        main=True,
    )
    sft_weight: float = option(
        0.0,
        "Weight of the chosen answers' own loss, nats per token, added to the pairs'. 0.1–1 when "
        "logps/chosen falls: the chosen answers are being unlearned with the rejected ones.",
        minimum=0.0,
        section=Section.REFERENCE,
    )
    label_smoothing: float = option(
        0.0,
        "Expected share of flipped labels (robust, aot), or of the probability left to the "
        "rejected answer (exo_pair: 0.001). 0.1 where annotators often err; other losses have "
        "none.",
        minimum=0.0,
        maximum=0.49,
        section=Section.REFERENCE,
    )
    discopop_tau: float = option(
        0.05,
        "Temperature of discopop's blend of two losses; its paper's value fits.",
        above=0.0,
        section=Section.REFERENCE,
    )
    simpo_gamma: float | None = option(
        None,
        "Margin of simpo, in the units of beta × nats per token; 0.3–1.6 with a beta of 2–2.5. "
        "Unset: 0.5. Experimental; other losses have none.",
        minimum=0.0,
        section=Section.REFERENCE,
    )
    precompute_reference: bool = option(
        False,
        "Ask the reference about all pairs once, before training, instead of at every step. Set it "
        "for more than one epoch, or where an accelerator has no room for the reference; not where "
        "max_seconds or max_steps ends the run long before its pairs.",
        section=Section.REFERENCE,
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.loss_type == "exo_pair" and not self.label_smoothing:
            errors.append("label_smoothing: exo_pair needs one over 0; its paper recommends 0.001")
        if self.label_smoothing and self.loss_type not in _SMOOTHED:
            errors.append(
                f"label_smoothing: {self.loss_type} has none; one of {', '.join(_SMOOTHED)} does"
            )
        if self.simpo_gamma is not None and self.loss_type != "simpo":
            errors.append(f"simpo_gamma: {self.loss_type} has none; simpo does")
        if self.precompute_reference and self.loss_type in REFERENCE_FREE:
            errors.append(
                f"precompute_reference: {self.loss_type} asks no reference while it trains"
            )
        if self.sft_weight and self.loss_type == "orpo":
            errors.append(
                "sft_weight: orpo adds the chosen answers' own loss by itself; leave it at 0, and "
                "change beta, the weight of the odds ratio beside it"
            )
        if self.loss_type in _BY_STEP and (
            self.max_tokens_per_batch or self.gradient_accumulation > 1
        ):
            errors.append(
                f"loss_type: {self.loss_type} sorts the pairs of a whole step, so a step cannot be "
                "split (max_tokens_per_batch, gradient_accumulation)"
            )
        return errors


@dataclass(frozen=True, kw_only=True)
class KTOSettings(SampledSettings):
    """Kahneman–Tversky optimisation: single answers, each desirable or not, against the SFT model
    as the reference."""

    beta: float = option(
        0.1,
        "How strongly the policy is held to the reference; 0.01–0.5. Raise it when the KL runs "
        "away, lower it when nothing moves.",
        above=0.0,
        section=Section.REFERENCE,
        main=True,
    )
    loss_type: str = option(
        "kto",
        "TRL's loss: kto measures each answer from the policy's mean divergence; apo_zero_unpaired "
        "from none, so desirable answers go up wherever they stand.",
        choices=("kto", "apo_zero_unpaired"),
        section=Section.REFERENCE,
        main=True,
    )
    desirable_weight: float | None = option(
        None,
        "Weight of a desirable answer's loss. Unset: what makes both labels count the same in sum, "
        "whatever their numbers.",
        above=0.0,
        section=Section.REFERENCE,
    )
    undesirable_weight: float = option(
        1.0,
        "Weight of an undesirable answer's loss. Over 1 where avoiding bad answers matters more "
        "than giving good ones; the unset desirable_weight follows it, so set both then.",
        above=0.0,
        section=Section.REFERENCE,
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.loss_type == "kto" and self.batch_size < 2:
            errors.append(
                "batch_size: kto reads each answer behind another prompt of its step too, so a "
                "step needs at least 2 answers"
            )
        return errors


@dataclass(frozen=True, kw_only=True)
class ProcessRewardSettings(TrainingSettings):
    """A process reward model: is each step of a trajectory right? Binary cross-entropy at the end
    of each marked step."""

    base_model: str | None = option(
        None,
        "Hub id or folder of the causal language model to start from, when no checkpoint is an "
        "input.",
        section=Section.MODEL,
    )
    bootstrap_replicates: int = option(
        2000,
        "Resamples of whole trajectories behind each interval of the report.",
        minimum=200,
        maximum=20_000,
        section=Section.BOOKKEEPING,
    )
