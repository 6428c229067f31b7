"""Settings of `assess`, which looks at a reward model from every side and trains nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import option
from workers.config.server import DOC, server_errors


@dataclass(frozen=True, kw_only=True)
class AssessSettings:
    """How much is looked at, and how the policy answers while it is."""

    max_pairs: int = option(
        3000,
        "Pairs scored of each file, drawn with the run's seed. Fewer give wider intervals.",
        unit="pairs",
        minimum=50,
    )
    max_outputs: int = option(
        100,
        "Prompts answered by the policy and the SFT model; people can rank these answers.",
        unit="prompts",
        minimum=1,
    )
    probe_prompts: int = option(
        60,
        "Questions whose answers are attacked: emptied, praised, cut, shuffled.",
        unit="prompts",
        minimum=10,
    )
    effect_answers: int = option(
        60,
        "Answers that each suspicious word is put into, to see whether it moves the score.",
        unit="answers",
        minimum=10,
    )
    best_of: int = option(
        64,
        "Answers drawn for each prompt of the best-of-n curve; it reaches n = half of them.",
        unit="answers",
        minimum=8,
        maximum=1024,
    )
    best_of_prompts: int = option(
        50,
        "Prompts of the best-of-n curve; 0 leaves it out.",
        unit="prompts",
        minimum=0,
    )
    planned_kl: float = option(
        10.0,
        "How far a policy is to be trained away from its SFT model. The best-of-n curve must not "
        "peak before.",
        unit="nats per sequence",
        above=0.0,
    )
    check_precision: bool = option(
        True, "Whether half precision and int8 are compared with float32."
    )
    max_prompt_length: int = option(
        512, "Longer prompts are left out and counted.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(256, "Longest answer of the policy.", unit="tokens", minimum=1)
    temperature: float = option(
        1.0, "Best-of-n needs draws that differ, so it must be over 0.", above=0.0, maximum=5.0
    )
    top_p: float = option(1.0, "Mass of the likeliest tokens kept.", above=0.0, maximum=1.0)
    top_k: int = option(0, "Likeliest tokens kept; 0 keeps all.", unit="tokens", minimum=0)
    batch_size: int = option(32, "Texts scored or answered at once.", unit="texts", minimum=1)
    bootstrap_replicates: int = option(
        1000, "Resamples behind each interval.", minimum=100, maximum=100_000
    )
    server: Mapping[str, Any] = option({}, DOC)

    def check(self) -> list[str]:
        return server_errors(self.server)
