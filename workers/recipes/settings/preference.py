"""Settings of `reward` and `dpo`, which learn from pairs."""

from dataclasses import dataclass

from workers.recipes.settings.common import TrainingSettings
from workers.recipes.settings.parsing import option


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
    bootstrap_replicates: int = option(
        1000, "Resamples behind each interval.", minimum=100, maximum=100_000
    )


@dataclass(frozen=True, kw_only=True)
class DPOSettings(TrainingSettings):
    """Direct preference optimisation, against the SFT model as the reference."""

    beta: float = option(
        0.1, "How strongly the policy is held to the reference; 0.01–0.5.", above=0.0
    )
    loss_type: str = option(
        "sigmoid",
        "TRL's loss: sigmoid is DPO, ipo does not overfit sure labels, robust expects flips.",
        choices=("sigmoid", "ipo", "hinge", "robust"),
    )
    label_smoothing: float = option(
        0.0, "Expected share of flipped labels (robust).", minimum=0.0, maximum=0.49
    )
    sample_prompts: int = option(
        16,
        "Held-out prompts answered at each evaluation, for the KL and for people to read.",
        unit="prompts",
        minimum=1,
    )
    sample_max_new_tokens: int = option(64, "Longest sampled answer.", unit="tokens", minimum=1)
