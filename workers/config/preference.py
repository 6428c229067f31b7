"""Settings of `reward` and `dpo`, which learn from pairs."""

from dataclasses import dataclass

from workers.config.adapted import AdaptedSettings
from workers.config.common import TrainingSettings
from workers.config.parsing import option


@dataclass(frozen=True, kw_only=True)
class RewardSettings(TrainingSettings):
    """A Bradley–Terry reward model."""

    labels: str = option(
        "hard",
        "hard: the chosen answer wins; soft: it wins with the row's confidence.",
        choices=("hard", "soft"),
    )
    use_weights: bool = option(True, "Whether rows count by their weight.")
    center_coef: float = option(
        0.0,
        "Weight of (r_chosen + r_rejected)², which keeps scores around 0. About 0.01 if used.",
        minimum=0.0,
    )
    dropout: float = option(
        0.0, "Dropout while training, where the model has it.", minimum=0.0, maximum=0.9
    )
    label_smoothing: float = option(
        0.0,
        "Share of labels held to be flipped; 0.05–0.1 where annotators often err.",
        minimum=0.0,
        maximum=0.49,
    )
    margin_coef: float = option(
        0.0,
        "Score distance asked per grade of a row's `strength` (1 better, 2 far better); 0 asks "
        "none. Rows without a grade ask none.",
        minimum=0.0,
    )
    lora_rank: int = option(
        0,
        "Rank of low-rank adapters (LoRA) trained in place of the weights; 0 trains the weights. "
        "8–32 for models that do not fit the memory otherwise; the score head trains whole.",
        minimum=0,
        maximum=1024,
    )
    lora_alpha: float = option(
        32.0, "Scale of the adapters: their sum counts alpha / rank.", above=0.0
    )
    gradient_checkpointing: bool = option(
        False, "Compute activations twice to keep fewer: about a third slower, far less memory."
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included and both answers counted, that are computed at once. A "
        "step is split to stay under it; the result is the same. Set it when memory runs out.",
        unit="tokens",
        minimum=16,
    )
    sampling: str = option(
        "all",
        "all: every pair once a pass; stratified: the same, each step with its share of every "
        "group and length; inverse_frequency: pairs of rare groups as often as of large ones.",
        choices=("all", "stratified", "inverse_frequency"),
    )
    recency_half_life_days: float | None = option(
        None,
        "Age at which a pair counts half as much as the newest one; needs `decided_at` in every "
        "training row.",
        unit="days",
        above=0.0,
    )
    hard_weight: float = option(
        1.0,
        "How much a pair of the input 'hard' (adversarial pairs) counts beside one of 'data'.",
        above=0.0,
        maximum=100.0,
    )
    on_overlong: str = option(
        "truncate",
        "Training pairs longer than max_length: truncate, drop (as TRL does, silently), or fail.",
        choices=("truncate", "drop", "fail"),
    )
    patience: int | None = option(
        None,
        "Stop after so many evaluations without a lower held-out loss, and keep the weights of "
        "the lowest. Empty trains to the end and keeps the last ones.",
        unit="evaluations",
        minimum=1,
    )
    min_delta: float = option(
        0.0, "A held-out loss counts as lower from this distance on.", unit="nats", minimum=0.0
    )
    folds: int = option(
        0,
        "Cross-validation: so many models are trained first, each tested on annotators (or "
        "groups, or prompts) it did not see. 0: none; 5 costs five trainings more.",
        unit="folds",
        minimum=0,
        maximum=20,
    )
    members: int = option(
        1,
        "Models of an ensemble, trained one after another; their disagreement tells which "
        "answers not to trust. 1: a single model.",
        unit="models",
        minimum=1,
        maximum=20,
    )
    member_split: str = option(
        "bootstrap",
        "How members differ besides their seed: kfold leaves another part out for each, "
        "bootstrap draws pairs with replacement, seed trains all on the same pairs.",
        choices=("kfold", "bootstrap", "seed"),
    )
    aggregate: str = option(
        "mean",
        "How the members' scores become one.",
        choices=("mean", "min", "median", "mean_minus_lambda_var", "mean_minus_lambda_std"),
    )
    disagreement_coef: float = option(
        1.0, "λ of the aggregates that subtract disagreement.", minimum=0.0
    )
    preflight: bool = option(
        False, "Only look: count, estimate and report what a run would do, train nothing."
    )
    bootstrap_replicates: int = option(
        1000, "Resamples behind each interval.", minimum=100, maximum=100_000
    )

    def check(self) -> list[str]:
        return ["folds: 1 is no cross-validation; 0 or at least 2"] if self.folds == 1 else []


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


@dataclass(frozen=True, kw_only=True)
class DPOSettings(AdaptedSettings):
    """Direct preference optimisation, against the SFT model as the reference."""

    beta: float = option(
        0.1,
        "How strongly the policy is held to the reference; 0.01–0.5. Raise it when the KL runs "
        "away, lower it when nothing moves. With ipo it is τ.",
        above=0.0,
    )
    loss_type: str = option(
        "sigmoid",
        "TRL's loss: sigmoid is DPO, ipo does not overfit sure labels, robust expects flips. What "
        "each of them is for is in docs/dpo.md.",
        choices=_BY_PAIR + _BY_STEP,
    )
    sft_weight: float = option(
        0.0,
        "Weight of the chosen answers' own loss, nats per token, added to the pairs'. 0.1–1 when "
        "logps/chosen falls: the chosen answers are being unlearned with the rejected ones.",
        minimum=0.0,
    )
    label_smoothing: float = option(
        0.0,
        "Expected share of flipped labels (robust, aot), or of the probability left to the "
        "rejected answer (exo_pair: 0.001). 0.1 where annotators often err; other losses have "
        "none.",
        minimum=0.0,
        maximum=0.49,
    )
    discopop_tau: float = option(
        0.05, "Temperature of discopop's blend of two losses; its paper's value fits.", above=0.0
    )
    precompute_reference: bool = option(
        False,
        "Ask the reference about all pairs once, before training, instead of at every step. Set it "
        "for more than one epoch, or where an accelerator has no room for the reference; not where "
        "max_seconds or max_steps ends the run long before its pairs.",
    )
    sample_prompts: int = option(
        16,
        "Held-out prompts answered at each evaluation, for the KL and for people to read.",
        unit="prompts",
        minimum=1,
    )
    sample_max_new_tokens: int = option(64, "Longest sampled answer.", unit="tokens", minimum=1)

    def check(self) -> list[str]:
        errors = []
        if self.loss_type == "exo_pair" and not self.label_smoothing:
            errors.append("label_smoothing: exo_pair needs one over 0; its paper recommends 0.001")
        if self.label_smoothing and self.loss_type not in _SMOOTHED:
            errors.append(
                f"label_smoothing: {self.loss_type} has none; one of {', '.join(_SMOOTHED)} does"
            )
        if self.loss_type in _BY_STEP and (
            self.max_tokens_per_batch or self.gradient_accumulation > 1
        ):
            errors.append(
                f"loss_type: {self.loss_type} sorts the pairs of a whole step, so a step cannot be "
                "split (max_tokens_per_batch, gradient_accumulation)"
            )
        return errors
