"""Settings of `sft`."""

from dataclasses import dataclass

from workers.recipes.settings.common import TrainingSettings
from workers.recipes.settings.parsing import option


@dataclass(frozen=True, kw_only=True)
class SFTSettings(TrainingSettings):
    """Supervised fine-tuning on demonstrations; the loss is on the answer only."""

    overlong: str = option(
        "drop",
        "What to do with rows longer than `max_length`: a cut answer teaches not to end.",
        choices=("drop", "truncate"),
    )
    held_out_share: float = option(
        0.05,
        "Share of the rows kept for the held-out loss, when the snapshot has no evaluation file.",
        minimum=0.0,
        maximum=0.5,
    )
    sample_prompts: int = option(
        4, "Held-out prompts answered at the end, for people to read.", unit="prompts", minimum=0
    )
    sample_max_new_tokens: int = option(64, "Longest sampled answer.", unit="tokens", minimum=1)
    base_vocabulary: int = option(
        2048,
        "Size of the tokenizer that is built when there is no base model.",
        unit="tokens",
        minimum=300,
    )
    base_width: int = option(128, "Hidden size of the model built then.", minimum=8)
    base_layers: int = option(4, "Layers of the model built then.", minimum=1)
    base_heads: int = option(4, "Attention heads of the model built then.", minimum=1)
    base_context: int = option(
        256, "Longest sequence the model built then can read.", unit="tokens", minimum=16
    )

    def check(self) -> list[str]:
        errors = []
        if self.base_width % (2 * self.base_heads):
            errors.append("base_width: must be a multiple of twice base_heads (rotary positions)")
        if self.base_model is None and self.max_length > self.base_context:
            errors.append("max_length: is longer than base_context, the built model's limit")
        return errors
