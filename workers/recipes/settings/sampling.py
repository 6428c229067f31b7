"""Settings of `generate` and `evaluate`, which train nothing."""

from dataclasses import dataclass

from workers.recipes.settings.parsing import option


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


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(AnsweringSettings):
    """Fresh pairs of answers for people to compare."""

    opponent: str = option(
        "self",
        "self: two draws from the policy; baseline: the policy against the input 'sft'.",
        choices=("self", "baseline"),
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnsweringSettings):
    """The policy against its SFT model on fixed prompts."""

    draws: int = option(1, "Answers per prompt; raise it when prompts are few.", minimum=1)
    bootstrap_replicates: int = option(
        1000, "Resamples behind each interval.", minimum=100, maximum=100_000
    )
