"""What lies in a checkpoint, and which of it leaves with the model.

config.json, model.safetensors, tokenizer …   a model folder that any program loads
adapter/                                      of a LoRA: the adapters, as peft saves them
resume/                                       what only the trainer reads, to go on from there
"""

from collections.abc import Iterable
from pathlib import Path

RESUME, ADAPTER = "resume", "adapter"
CARD = "README.md"
MERGED = "merged"  # the whole model; of a LoRA with its adapters added into the weights
PARTS = (MERGED, ADAPTER)
_TOKENIZER = ("token", "special_", "added_", "chat_template", "vocab", "merges", "spiece")
_PAPERS = ("LICENSE", "NOTICE")
# What trainers left beside the model before there was `resume/`.
_BEFORE = (
    "best/",
    "critic.",
    "grpo_state.",
    "guards.",
    "optimizer.",
    "randomness_",
    "reference_logprobs.",
    "rollouts.",
    "scheduler.",
    "trainer_state.",
    "training.",
    "training_args.",
    "training_state.",
    "value_head.",
)


def state_of(folder: Path) -> Path:
    """Where the trainer's state lies in a checkpoint."""
    inner = folder / RESUME
    return inner if inner.is_dir() else folder


def state_in(folder: Path) -> Path:
    """The same of a checkpoint that is being written."""
    inner = folder / RESUME
    inner.mkdir(parents=True, exist_ok=True)
    return inner


def has_adapter(names: Iterable[str]) -> bool:
    return any(name.startswith(f"{ADAPTER}/") for name in names)


def model_files(names: Iterable[str], part: str = MERGED) -> dict[str, str]:
    """{name in a download: name in the checkpoint}, sorted; of the adapters with the tokenizer."""
    adapter = f"{ADAPTER}/"
    if part == ADAPTER:
        kept = {n.removeprefix(adapter): n for n in names if n.startswith(adapter)}
        kept |= {n: n for n in names if n.startswith((*_TOKENIZER, *_PAPERS)) and "/" not in n}
    else:
        kept = {n: n for n in names if not n.startswith((f"{RESUME}/", *_BEFORE))}
        kept = {n: n for n in kept if f"/{adapter}" not in f"/{n}"}  # members have theirs
    return dict(sorted(kept.items()))
