"""What to do when memory ran out, in the order of what it costs. No torch."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

# First what changes nothing but speed, then what changes the data, then what needs more machines.
PASSES = ("max_tokens_per_batch", "microbatch_size")
CHUNKS = ("rollout_chunk", "logits_chunk", "reward_batch_size")
LENGTHS = ("max_new_tokens", "max_completion_length", "max_prompt_length", "max_length")


def out_of_memory_advice(kind: str, config: Mapping[str, Any]) -> str:
    """One to three sentences that name the recipe's own settings with their values; "" for a kind
    without settings."""
    # Imported here: the trainer must be able to fail without the recipes.
    from workers.config import SETTINGS
    from workers.config.presets import PRESETS

    cls = SETTINGS.get(kind)
    if cls is None:
        return ""
    values = {
        f.name: f.default if f.default is not MISSING else None for f in fields(cls) if f.init
    }
    values |= PRESETS.get(kind, {}).get(str(config.get("preset")), {})
    values |= {name: value for name, value in config.items() if name in values}
    return " ".join(
        f"{order} {sentence}"
        for order, sentence in zip(
            ("First,", "Then,", "Last,"),
            filter(None, (_micro_batch(values), _length(values), _sharding(values))),
            strict=False,
        )
    )


def _micro_batch(values: Mapping[str, Any]) -> str:
    smaller = [*_passes(values)]
    smaller += [
        f"{name} {values[name]} → {max(1, int(values[name]) // 2)}"
        for name in CHUNKS
        if isinstance(values.get(name), int) and values[name] > 1
    ]
    more = []
    if values.get("gradient_checkpointing") in (False, "off", "auto"):
        more.append("switch gradient_checkpointing on (slower by a third)")
    if values.get("lora_rank") == 0:
        more.append("train adapters (lora_rank 16) in place of all weights")
    extra = " and ".join(more)
    said = f"compute less at once, which changes no result: {', '.join(smaller)}" if smaller else ""
    return "; ".join(part for part in (said, extra) if part) + "." if said or extra else ""


def _passes(values: Mapping[str, Any]) -> list[str]:
    """The one setting to lower that decides how much a pass with gradient computes."""
    for name in PASSES:
        if isinstance(values.get(name), int) and values[name] > 1:
            return [f"{name} {values[name]} → {values[name] // 2}"]
    if "microbatch_size" in values:
        rows = int(values.get("minibatch_size") or values.get("batch_size") or 2)
        return [f"microbatch_size unset → {max(1, rows // 2)}"]
    if "gradient_accumulation" in values:
        parts = int(values["gradient_accumulation"] or 1)
        return [f"gradient_accumulation {parts} → {2 * parts}"]
    return []


def _length(values: Mapping[str, Any]) -> str:
    named = [f"{name} ({values[name]})" for name in LENGTHS if isinstance(values.get(name), int)]
    return f"shorten the sequences: {', '.join(named)}." if named else ""


def _sharding(values: Mapping[str, Any]) -> str:
    return (
        "take a device with more memory, or split optimizer, gradients and weights over several "
        "(ZeRO, FSDP); docs/memory.md says what each saves."
    )
