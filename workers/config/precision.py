"""Settings of every training about number formats and kernels: what weights take in memory."""

from dataclasses import dataclass

from workers.config.parsing import Section, option


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """Fields of all recipes that train a model."""

    frozen_weights: str = option(
        "auto",
        "How weights that do not train are kept: the model below adapters, a reference of its own. "
        "bfloat16 keeps the matrices in two bytes each and computes what float32 would, to the "
        "bit where the model's files are bfloat16. auto: bfloat16 on a GPU where the files hold "
        "two bytes, else float32. Layouts that split weights keep float32.",
        choices=("auto", "float32", "bfloat16"),
        section=Section.MEMORY,
    )
    base_4bit: bool = option(
        False,
        "Keep the linear layers below adapters in 4 bits (QLoRA: NF4, double quantisation). Needs "
        "lora_rank and the extra `quant` on the worker. The checkpoint has them unpacked again, as "
        "they were trained with.",
        section=Section.MEMORY,
    )
    optimizer: str = option(
        "adamw",
        "adamw_8bit keeps AdamW's two moments in one byte each instead of four, for matrices of "
        "4,096 weights and more. Needs the extra `quant` on the worker.",
        choices=("adamw", "adamw_8bit"),
        section=Section.MEMORY,
    )
    attention: str = option(
        "auto",
        "Kernel of attention. auto: what transformers picks for the model, torch's sdpa as a rule. "
        "flash_attention_2 needs a GPU and the package flash-attn on the worker, and was not run "
        "on one yet. eager is slow, for comparing.",
        choices=("auto", "eager", "sdpa", "flash_attention_2"),
        section=Section.MEMORY,
    )
    liger: bool = option(
        False,
        "Liger's Triton kernels for norms, rotary positions and gated layers. Needs a GPU and the "
        "package liger-kernel on the worker, and was not run on one yet.",
        section=Section.MEMORY,
    )

    def check(self) -> list[str]:
        if self.base_4bit and not getattr(self, "lora_rank", 0):
            return ["base_4bit: weights in 4 bits cannot train; set lora_rank to train adapters"]
        return []
