"""Settings of `sft`."""

from dataclasses import dataclass

from workers.config.adapted import AdaptedSettings
from workers.config.parsing import option


@dataclass(frozen=True, kw_only=True)
class SFTSettings(AdaptedSettings):
    """Supervised fine-tuning on demonstrations; the loss is on the answer only."""

    loss_type: str = option(
        "nll",
        "TRL's loss: nll imitates every token alike; dft counts a token by its present likelihood, "
        "which unlearns less of what a pretrained model knows and learns little from scratch.",
        choices=("nll", "dft"),
    )
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
    imitation_prompts: int = option(
        64,
        "Held-out prompts answered at the end to compare length, refusals and format with the "
        "demonstrations. More give narrower intervals; 0 compares nothing.",
        unit="prompts",
        minimum=0,
    )
    imitation_max_new_tokens: int | None = option(
        None,
        "Where those answers, and the demonstrations beside them, are cut. Unset: twice what nine "
        "of ten demonstrations need, as far as the model can read.",
        unit="tokens",
        minimum=1,
    )
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
        256,
        "Longest sequence the model built then can read; `max_length` is at most this much then.",
        unit="tokens",
        minimum=16,
    )

    def check(self) -> list[str]:
        errors = []
        if self.base_width % (2 * self.base_heads):
            errors.append("base_width: must be a multiple of twice base_heads (rotary positions)")
        return errors
