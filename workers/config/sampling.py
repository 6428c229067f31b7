"""Settings of `generate` and `evaluate`, which train nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import option
from workers.config.rewards import needs_model, reward_errors
from workers.config.server import DOC, POLICY, SFT, server_errors


@dataclass(frozen=True, kw_only=True)
class AnsweringSettings:
    """How prompts are answered."""

    max_prompts: int = option(
        100, "Prompts used, drawn with the run's seed.", unit="prompts", minimum=1
    )
    max_prompt_length: int = option(
        512, "Longer prompts are left out and counted.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(256, "Longest answer.", unit="tokens", minimum=1)
    temperature: float = option(
        1.0, "0 takes the likeliest token each time.", minimum=0.0, maximum=5.0
    )
    top_p: float = option(1.0, "Mass of the likeliest tokens kept.", above=0.0, maximum=1.0)
    top_k: int = option(0, "Likeliest tokens kept; 0 keeps all.", unit="tokens", minimum=0)
    batch_size: int = option(32, "Prompts answered at once.", unit="prompts", minimum=1)
    server: Mapping[str, Any] = option({}, DOC)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(AnsweringSettings):
    """Fresh pairs of answers for people to compare."""

    opponent: str = option(
        "self",
        "self: two draws from the policy; baseline: the policy against the input 'sft'; revision: "
        "an answer of the policy against its own rewriting of it.",
        choices=("self", "baseline", "revision"),
    )
    principles: tuple[str, ...] = option(
        (
            "An answer is correct, and says what it does not know.",
            "An answer helps with what was asked, and says nothing that could harm anyone.",
            "An answer is as short as it can be without leaving out what matters.",
        ),
        "For revision: one is drawn for each prompt, to criticise and rewrite the answer by.",
    )
    filter: Mapping[str, Any] = option(
        {},
        "Rules, a verifier, a service or a sum of them, written as a reward: pairs with an answer "
        "that it blocks are left out, and logged. Empty: nothing is.",
    )

    def check(self) -> list[str]:
        errors = reward_errors(self.filter, "filter") if self.filter else []
        if needs_model(self.filter):
            errors.append("filter: a reward model blocks nothing")
        if not self.principles or not all(text.strip() for text in self.principles):
            errors.append("principles: must hold at least one, and none that is empty")
        serves = (POLICY, SFT) if self.opponent == "baseline" else (POLICY,)
        return errors + server_errors(self.server, may_fail=True, serves=serves)


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnsweringSettings):
    """The policy against its SFT model on fixed prompts."""

    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "What the policy was trained to please, written as in its run: {type: model} asks the "
        "input 'reward'; docs/rewards.md has the grammar of the others.",
    )
    draws: int = option(1, "Answers per prompt; raise it when prompts are few.", minimum=1)
    bootstrap_replicates: int = option(
        1000, "Resamples behind each interval.", minimum=100, maximum=100_000
    )

    def check(self) -> list[str]:
        return reward_errors(self.reward) + server_errors(self.server)
