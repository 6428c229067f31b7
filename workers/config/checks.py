"""Settings of `check` and `probe`, which ask a few questions of models and of what a run left."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import option
from workers.config.rewards import reward_errors
from workers.config.server import DOC, POLICY, server_errors

CHECKS = (
    "reward_plot",
    "rescore",
    "canaries",
    "kl_reference",
    "sampler",
    "critic_fit",
    "protocol",
)


@dataclass(frozen=True, kw_only=True)
class AskingSettings:
    """How models are asked: as in the run that is looked into, or figures would not compare."""

    max_prompt_length: int = option(
        512, "Longer prompts are left out, as in the run.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(128, "Longest answer, as in the run.", unit="tokens", minimum=1)
    temperature: float = option(
        1.0, "Of sampling and of log-probabilities, as in the run.", above=0.0, maximum=5.0
    )
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "The reward, written as in the run: {type: model} asks the input 'reward'; "
        "docs/rewards.md has the grammar of the others.",
    )
    eval_prompts: int = option(
        32, "Fixed prompts that are answered, chosen by the seed.", unit="prompts", minimum=1
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024
    )
    max_seconds: float = option(
        60.0,
        "What is measured by then is what is told. Raise it for large models, or when an answer "
        "stays undecided.",
        unit="s",
        above=0.0,
    )

    def check(self) -> list[str]:
        return reward_errors(self.reward)


@dataclass(frozen=True, kw_only=True)
class CheckSettings(AskingSettings):
    """One question about a run that is in trouble, answered from what it left."""

    check_: str = option(
        "reward_plot", "Which question; docs/checks.md explains each.", choices=CHECKS
    )
    last: int = option(
        1000, "Newest kept answers that are read.", unit="answers", minimum=30, maximum=100_000
    )
    step: int | None = option(
        None, "The step of the run that is looked into; shown with the result.", minimum=0
    )
    reported: float | None = option(
        None,
        "What the run itself reported there: nats per answer for kl_reference, the change of the "
        "mean score since the start for protocol. Without it the figure is told, not judged.",
    )
    tolerance: float = option(
        1e-3,
        "rescore: how far two scores of one answer may be apart. A GPU rounds differently from "
        "batch to batch; raise it to 0.01 for half precision.",
        unit="deviations of the kept scores",
        above=0.0,
    )
    max_pairs: int = option(
        400,
        "Canary pairs that are asked, and as many of the reward's own.",
        unit="pairs",
        minimum=1,
    )
    canary_rows: str = option(
        "all",
        "all: every row of the input 'canaries'; held_out: its strictest evaluation file, where "
        "the reward model learned from the rest.",
        choices=("all", "held_out"),
    )


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(AskingSettings):
    """A registered model asked the same things again, to be laid beside an earlier time."""

    draws: int = option(
        1, "Answers to each prompt; raise it when prompts are few.", minimum=1, maximum=64
    )
    baseline_mean: float | None = option(
        None,
        "Mean raw score of a known good model's answers: gives scores an origin, and the "
        "calibrated score σ((r − mean)/T).",
        unit="raw score",
    )
    score_temperature: float = option(
        1.0, "T of the calibrated score, from the reward model's page.", unit="raw score", above=0.0
    )
    server: Mapping[str, Any] = option({}, DOC)

    def check(self) -> list[str]:
        return super().check() + server_errors(self.server, serves=(POLICY,))
