"""How answers are drawn. No torch."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """Everything that decides a draw; nothing is inherited from the model's own defaults."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 takes the most likely token each time
    top_p: float = 1.0  # 1 keeps the whole distribution
    top_k: int = 0  # 0 keeps the whole vocabulary
    seed: int = 0


def derive_seed(seed: int, *parts: str | int) -> int:
    """A seed for one purpose of a run, for instance ("rollout", 17): 0 … 2³¹ − 1.

    Each step draws from its own seed, so a run that is resumed at step k continues exactly like
    one that was never stopped, with no generator state to carry over.
    """
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
