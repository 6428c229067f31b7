"""Fields of every recipe that optimises a policy against a reward: `ppo` and `grpo`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.behaviour.phrases import phrase_name
from workers.config.parsing import option
from workers.config.rewards import reward_errors

LONGEST_PHRASE = 60  # characters, as the end of a metric's name


@dataclass(frozen=True, kw_only=True)
class OptimisedSettings:
    """What is drawn, rewarded, watched and kept, however the policy learns from it."""

    # policy
    lora_rank: int = option(
        16,
        "Rank of the low-rank adapters (LoRA) that are trained in place of the weights; switched "
        "off, they leave the reference, so no second copy is kept. 0 trains all weights beside a "
        "frozen copy: for small models, or when adapters do not reach far enough.",
        minimum=0,
        maximum=1024,
    )
    lora_alpha: float = option(
        32.0, "Scale of the adapters: their sum counts alpha / rank.", above=0.0
    )
    gradient_checkpointing: str = option(
        "auto",
        "Compute activations twice to keep fewer: about a third slower, far less memory. auto: on "
        "a GPU.",
        choices=("auto", "on", "off"),
    )
    # answers
    max_prompt_length: int = option(
        512, "Longer prompts are left out and counted.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(
        128, "Longest answer; what is cut there has no end token.", unit="tokens", minimum=1
    )
    temperature: float = option(
        1.0, "Of sampling, and of every log-probability compared with it.", above=0.0, maximum=5.0
    )
    # reward
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "Where rewards come from: {type: model} (input 'reward'), rules, verifiers, a service, or "
        "a weighted sum of these; docs/rewards.md has the grammar. disagreement_threshold beside "
        "{type: model} stands over an ensemble's own.",
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024
    )
    baseline_answers: int = option(
        4,
        "Answers of the reference to each evaluation prompt before the first step: what calibrated "
        "scores, lengths and alarms are measured against. 0 measures none, and those alarms rest.",
        unit="answers",
        minimum=0,
        maximum=64,
    )
    reference_differs: bool = option(
        False, "The input 'reference' is meant to be another model than the starting policy."
    )
    # update
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
    )
    warmup_share: float = option(
        0.0, "Share of the steps over which the step size rises.", minimum=0.0, maximum=0.5
    )
    entropy_coef: float = option(
        0.0, "Weight of an entropy bonus. Raise it when entropy collapses.", minimum=0.0
    )
    max_grad_norm: float = option(1.0, "Longer gradients are scaled down to it.", above=0.0)
    # guardrails
    patience: int | None = option(
        None,
        "Stop and keep after so many evaluations without a better held-out score; empty goes on "
        "to the last step.",
        unit="evaluations",
        minimum=1,
    )
    reward_check: str = option(
        "block",
        "Before the first step: does the reward rank the starting policy's answers over random "
        "tokens? block refuses to train where it does not, warn goes on, off does not look.",
        choices=("block", "warn", "off"),
    )
    minimal: bool = option(
        False,
        "The same configuration in small: few steps, few and short answers, at most a minute. To "
        "reproduce a trouble before a long run.",
    )
    # watching
    refusal_phrases: tuple[str, ...] = option(
        (),
        "Phrases that make an answer a refusal when one stands in its first 200 characters. Empty: "
        "the shipped English list (workers/behaviour/phrases.py). Set it for another language, or "
        "where your assistant refuses in words of its own.",
    )
    watch_phrases: tuple[str, ...] = option(
        (),
        "Phrases to count one by one in answers of policy and reference, with what the reward pays "
        "for each. Set those you suspect the reward of liking.",
    )
    # bookkeeping
    eval_every: int = option(10, "Steps between held-out evaluations.", unit="steps", minimum=1)
    eval_prompts: int = option(
        32, "Fixed prompts answered at each evaluation.", unit="prompts", minimum=1
    )
    save_every: int = option(
        20, "Steps between checkpoints; what a crash can cost.", unit="steps", minimum=1
    )
    sample_every: int = option(
        10, "Steps between sampled answers for people to read.", unit="steps", minimum=1
    )
    audit_samples: int = option(
        5, "Answers of each bucket in the audit: highest, lowest, random.", minimum=1
    )

    def check(self) -> list[str]:
        return reward_errors(self.reward) + _phrase_errors(self)


def _phrase_errors(settings: OptimisedSettings) -> list[str]:
    """A phrase must hold a word, or nothing would be counted, and its metric a name of its own."""
    errors = [
        f"{name}: '{phrase}' holds no word"
        for name in ("refusal_phrases", "watch_phrases")
        for phrase in getattr(settings, name)
        if not phrase_name(phrase)
    ]
    seen: dict[str, str] = {}
    for phrase in settings.watch_phrases:
        name = phrase_name(phrase)
        if name in seen:
            errors.append(f"watch_phrases: '{phrase}' and '{seen[name]}' would be one metric")
        if len(name) > LONGEST_PHRASE:
            errors.append(f"watch_phrases: '{phrase}' is over {LONGEST_PHRASE} characters long")
        seen[name] = phrase
    return errors
