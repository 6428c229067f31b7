"""Fields of the trainings of language models by imitation or by pairs: what fits into memory."""

from dataclasses import dataclass

from workers.config.common import TrainingSettings
from workers.config.parsing import option


@dataclass(frozen=True, kw_only=True)
class AdaptedSettings(TrainingSettings):
    """`sft` and `dpo`."""

    lora_rank: int = option(
        0,
        "Rank of low-rank adapters (LoRA) trained in place of the weights; 0 trains the weights. "
        "8–32 for models that do not fit the memory otherwise; ten times the learning rate then.",
        minimum=0,
        maximum=1024,
    )
    lora_alpha: float = option(
        32.0,
        "Scale of the adapters: their sum counts alpha / rank. Leave it at twice the rank.",
        above=0.0,
    )
    gradient_checkpointing: bool = option(
        False, "Compute activations twice to keep fewer: about a third slower, far less memory."
    )
    max_tokens_per_batch: int | None = option(
        None,
        "Most tokens, padding included, that are computed at once. A step is split to stay under "
        "it; the result is the same. Set it when memory runs out, and on accelerators: 8,000–"
        "32,000 keep one busy.",
        unit="tokens",
        minimum=16,
    )
