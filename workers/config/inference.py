"""Settings of what trains nothing: generate, evaluate, assess, check, probe, register, push,
drill."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.artifacts import MERGED, PARTS
from workers.config.parsing import Section, option, read
from workers.config.rewards import needs_model, reward_errors
from workers.config.server import DOC, POLICY, SFT, server_errors
from workers.contract.jobs import is_hub_id

# Settings of what trains nothing: `generate`, `evaluate`, `assess`, `check` and `probe`.

# Settings of `generate` and `evaluate`, which train nothing.


@dataclass(frozen=True, kw_only=True)
class AnsweringSettings:
    """How prompts are answered."""

    max_prompts: int = option(
        100,
        "Prompts used, drawn with the run's seed.",
        unit="prompts",
        minimum=1,
        section=Section.DATA,
        main=True,
    )
    max_prompt_length: int = option(
        512,
        "Longer prompts are left out and counted.",
        unit="tokens",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    max_new_tokens: int = option(
        256, "Longest answer.", unit="tokens", minimum=1, section=Section.ROLLOUTS, main=True
    )
    temperature: float = option(
        1.0,
        "0 takes the likeliest token each time.",
        minimum=0.0,
        maximum=5.0,
        section=Section.ROLLOUTS,
        main=True,
    )
    top_p: float = option(
        1.0, "Mass of the likeliest tokens kept.", above=0.0, maximum=1.0, section=Section.ROLLOUTS
    )
    top_k: int = option(
        0, "Likeliest tokens kept; 0 keeps all.", unit="tokens", minimum=0, section=Section.ROLLOUTS
    )
    batch_size: int = option(
        32, "Prompts answered at once.", unit="prompts", minimum=1, section=Section.UPDATE
    )
    server: Mapping[str, Any] = option({}, DOC, section=Section.ROLLOUTS)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(AnsweringSettings):
    """Fresh pairs of answers for people to compare."""

    opponent: str = option(
        "self",
        "self: two draws from the policy; baseline: the policy against the input 'sft'; revision: "
        "an answer of the policy against a rewriting of it, by the input 'critic' or itself.",
        choices=("self", "baseline", "revision"),
        section=Section.ROLLOUTS,
        main=True,
    )
    principles: tuple[str, ...] = option(
        (
            "An answer is correct, and says what it does not know.",
            "An answer helps with what was asked, and says nothing that could harm anyone.",
            "An answer is as short as it can be without leaving out what matters.",
        ),
        "For revision: one is drawn for each prompt, to criticise and rewrite the answer by.",
        section=Section.ROLLOUTS,
    )
    principle_names: tuple[str, ...] = option(
        (),
        "What the principles are called, in their order; each pair keeps the name of its own. "
        "Empty: they have no names.",
        section=Section.ROLLOUTS,
    )
    constitution: int | None = option(
        None,
        "Version of the project's constitution that the principles are from; each pair keeps it. "
        "Nothing else depends on it.",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    to_people: bool = option(
        False,
        "Put the pairs into the label queue when the run has finished. Without it they are shown "
        "on the run's page, from where they can still be sent.",
        section=Section.PEOPLE,
        main=True,
    )
    votes_each: int | None = option(
        None,
        "Votes that each pair sent to people asks for. Empty: as many as the project asks for.",
        unit="votes",
        minimum=1,
        section=Section.PEOPLE,
        main=True,
    )
    queue_priority: float = option(
        0.0,
        "Over 0: people meet these pairs before all others. 0: in line with them.",
        minimum=0.0,
        maximum=1000.0,
        section=Section.PEOPLE,
        main=True,
    )
    filter: Mapping[str, Any] = option(
        {},
        "Rules, a verifier, a service or a sum of them, written as a reward: pairs with an answer "
        "that it blocks are left out, and logged. Empty: nothing is.",
        section=Section.ROLLOUTS,
    )

    def check(self) -> list[str]:
        errors = reward_errors(self.filter, "filter") if self.filter else []
        if needs_model(self.filter):
            errors.append("filter: a reward model blocks nothing")
        if not self.principles or not all(text.strip() for text in self.principles):
            errors.append("principles: must hold at least one, and none that is empty")
        names = self.principle_names
        if names and (len(names) != len(self.principles) or not all(n.strip() for n in names)):
            errors.append(
                f"principle_names: must be a name for each of {len(self.principles)}, or empty"
            )
        serves = (POLICY, SFT) if self.opponent == "baseline" else (POLICY,)
        return errors + server_errors(self.server, may_fail=True, serves=serves)


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnsweringSettings):
    """The policy against its SFT model on fixed prompts."""

    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "What the policy was trained to please, written as in its run: {type: model} asks the "
        "input 'reward'; docs/rewards.md has the grammar of the others.",
        section=Section.REWARD,
    )
    draws: int = option(
        1, "Answers per prompt; raise it when prompts are few.", minimum=1, section=Section.ROLLOUTS
    )
    bootstrap_replicates: int = option(
        1000,
        "Resamples behind each interval.",
        minimum=100,
        maximum=100_000,
        section=Section.BOOKKEEPING,
    )
    factuality: str = option(
        "normalised",
        "How answers are compared with the right one, where prompts have an `answer`. normalised: "
        "the same text but for case, widths, white space and a full stop at the end; contains: it "
        "stands in the answer as whole words; exact: every character. off: not at all.",
        choices=("normalised", "contains", "exact", "off"),
        section=Section.REWARD,
    )
    regression_margin: float = option(
        0.03,
        "Where prompts carry checks (a regression suite): a drop of the share passed that is "
        "tolerated. Not worse is said where the lower end of the difference is above it.",
        above=0.0,
        maximum=0.5,
        section=Section.BOOKKEEPING,
    )
    repeats: int = option(
        1,
        "How often both models answer all prompts, each time with other seeds; the figures are the "
        "first one's. 3 measure how far they move without any change of a model.",
        unit="times",
        minimum=1,
        maximum=20,
        section=Section.ROLLOUTS,
    )
    latency_requests: int = option(
        20,
        "Answers of the policy timed one at a time, where it answers (its server, or here), with "
        "and without the reward's score, for p50 and p99; 0 times none.",
        unit="requests",
        minimum=0,
        maximum=10_000,
        section=Section.BOOKKEEPING,
    )

    def check(self) -> list[str]:
        return reward_errors(self.reward) + server_errors(self.server)


# Settings of `assess`, which looks at a reward model from every side and trains nothing.


@dataclass(frozen=True, kw_only=True)
class AssessSettings:
    """How much is looked at, and how the policy answers while it is."""

    max_pairs: int = option(
        3000,
        "Pairs scored of each file, drawn with the run's seed. Fewer give wider intervals.",
        unit="pairs",
        minimum=50,
        section=Section.DATA,
        main=True,
    )
    max_outputs: int = option(
        100,
        "Prompts answered by the policy and the SFT model; people can rank these answers.",
        unit="prompts",
        minimum=1,
        section=Section.DATA,
        main=True,
    )
    probe_prompts: int = option(
        60,
        "Questions whose answers are attacked: emptied, praised, cut, shuffled.",
        unit="prompts",
        minimum=10,
        section=Section.DATA,
    )
    effect_answers: int = option(
        60,
        "Answers that each suspicious word is put into, to see whether it moves the score.",
        unit="answers",
        minimum=10,
        section=Section.DATA,
    )
    best_of: int = option(
        64,
        "Answers drawn for each prompt of the best-of-n curve; it reaches n = half of them.",
        unit="answers",
        minimum=8,
        maximum=1024,
        section=Section.ROLLOUTS,
        main=True,
    )
    best_of_prompts: int = option(
        50,
        "Prompts of the best-of-n curve; 0 leaves it out.",
        unit="prompts",
        minimum=0,
        section=Section.ROLLOUTS,
    )
    planned_kl: float = option(
        10.0,
        "How far a policy is to be trained away from its SFT model. The best-of-n curve must not "
        "peak before.",
        unit="nats per sequence",
        above=0.0,
        section=Section.REFERENCE,
        main=True,
    )
    check_precision: bool = option(
        True,
        "Whether half precision and int8 are compared with float32.",
        section=Section.GUARDRAILS,
    )
    max_prompt_length: int = option(
        512,
        "Longer prompts are left out and counted.",
        unit="tokens",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    max_new_tokens: int = option(
        256, "Longest answer of the policy.", unit="tokens", minimum=1, section=Section.ROLLOUTS
    )
    temperature: float = option(
        1.0,
        "Best-of-n needs draws that differ, so it must be over 0.",
        above=0.0,
        maximum=5.0,
        section=Section.ROLLOUTS,
    )
    top_p: float = option(
        1.0, "Mass of the likeliest tokens kept.", above=0.0, maximum=1.0, section=Section.ROLLOUTS
    )
    top_k: int = option(
        0, "Likeliest tokens kept; 0 keeps all.", unit="tokens", minimum=0, section=Section.ROLLOUTS
    )
    batch_size: int = option(
        32, "Texts scored or answered at once.", unit="texts", minimum=1, section=Section.UPDATE
    )
    bootstrap_replicates: int = option(
        1000,
        "Resamples behind each interval.",
        minimum=100,
        maximum=100_000,
        section=Section.BOOKKEEPING,
    )
    server: Mapping[str, Any] = option({}, DOC, section=Section.ROLLOUTS)

    def check(self) -> list[str]:
        return server_errors(self.server)


# Settings of `check` and `probe`, which ask a few questions of models and of what a run left.

CHECKS = (
    "reward_plot",
    "rescore",
    "canaries",
    "kl_reference",
    "sampler",
    "critic_fit",
    "protocol",
    "answers",
)
MOST_TRIED = 20  # answers


@dataclass(frozen=True, kw_only=True)
class AskingSettings:
    """How models are asked: as in the run that is looked into, or figures would not compare."""

    max_prompt_length: int = option(
        512,
        "Longer prompts are left out, as in the run.",
        unit="tokens",
        minimum=1,
        section=Section.ROLLOUTS,
    )
    max_new_tokens: int = option(
        128, "Longest answer, as in the run.", unit="tokens", minimum=1, section=Section.ROLLOUTS
    )
    temperature: float = option(
        1.0,
        "Of sampling and of log-probabilities, as in the run.",
        above=0.0,
        maximum=5.0,
        section=Section.ROLLOUTS,
    )
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "The reward, written as in the run: {type: model} asks the input 'reward'; "
        "docs/rewards.md has the grammar of the others.",
        section=Section.REWARD,
    )
    eval_prompts: int = option(
        32,
        "Fixed prompts that are answered, chosen by the seed.",
        unit="prompts",
        minimum=1,
        section=Section.BOOKKEEPING,
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024, section=Section.REWARD
    )
    max_seconds: float = option(
        60.0,
        "What is measured by then is what is told. Raise it for large models, or when an answer "
        "stays undecided.",
        unit="s",
        above=0.0,
        section=Section.UPDATE,
    )

    def check(self) -> list[str]:
        return reward_errors(self.reward)


@dataclass(frozen=True, kw_only=True)
class TriedAnswer:
    """One answer that a reward is tried on."""

    prompt: str = option("", "What was asked.")
    response: str = option("", "What was answered.")
    answer: str = option("", "What is known to be right; a list as JSON.")

    def check(self) -> list[str]:
        return [] if self.prompt.strip() else ["prompt: must not be empty"]


@dataclass(frozen=True, kw_only=True)
class CheckSettings(AskingSettings):
    """One question about a run that is in problem, answered from what it left."""

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
        section=Section.DATA,
    )
    canary_rows: str = option(
        "all",
        "all: every row of the input 'canaries'; held_out: its strictest evaluation file, where "
        "the reward model learned from the rest.",
        choices=("all", "held_out"),
    )
    answers: tuple[Mapping[str, Any], ...] = option(
        (),
        "answers: what the reward scores, each {prompt, response} and, where it is known, the "
        "right answer as `answer`. Empty: five of the input 'prompts'.",
    )

    def check(self) -> list[str]:
        errors = super().check()
        if len(self.answers) > MOST_TRIED:
            errors.append(f"answers: {len(self.answers)} are more than {MOST_TRIED}")
        for i, one in enumerate(self.answers[:MOST_TRIED]):
            errors += read(TriedAnswer, one, where=f"answers[{i}].", what="an answer")[1]
        return errors


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(AskingSettings):
    """A registered model asked the same things again, to be laid beside an earlier time."""

    draws: int = option(
        1,
        "Answers to each prompt; raise it when prompts are few.",
        minimum=1,
        maximum=64,
        section=Section.ROLLOUTS,
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
    server: Mapping[str, Any] = option({}, DOC, section=Section.ROLLOUTS)

    def check(self) -> list[str]:
        return super().check() + server_errors(self.server, serves=(POLICY,))


# Settings of the `register_` kinds, which take in a model that was trained elsewhere.


@dataclass(frozen=True, kw_only=True)
class RegisterSettings:
    """Where the model is; what it is for, the kind of run says."""

    model: str = option(
        "",
        "Folder on the worker, below one that its MODEL_FOLDERS lists, or the id of a model on a "
        "hub where the worker may ask it. A GGUF file may be named itself.",
        section=Section.MODEL,
        main=True,
    )
    adapter: str | None = option(
        None,
        "Folder or hub id of a LoRA adapter that was trained on `model`; the two are merged.",
        section=Section.MODEL,
        main=True,
    )

    def check(self) -> list[str]:
        return [] if self.model else ["model: name a folder on the worker, or the id on a hub"]


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """What goes where. The token is the worker's alone: HF_TOKEN of its environment."""

    repo: str = option(
        "",
        "Repository on the hub, such as `organisation/name`; it is made where there is none.",
        section=Section.MODEL,
        main=True,
    )
    part: str = option(
        MERGED,
        "The whole model, or of a LoRA the adapter alone.",
        choices=PARTS,
        section=Section.MODEL,
        main=True,
    )
    private: bool = option(
        True, "Whether a repository that is made is private.", section=Section.MODEL, main=True
    )
    card: str = option("", "README.md of the repository.", section=Section.MODEL)

    def check(self) -> list[str]:
        if is_hub_id(self.repo):
            return []
        return ["repo: name a repository of the hub, such as organisation/name"]


# Settings of `drill`, a run that trains nothing.

FAULTS = ("none", "exit", "segv", "kill", "hang", "oom", "bug", "data", "garbage", "violation")


@dataclass(frozen=True, kw_only=True)
class DrillSettings:
    """How long the drill takes and how it goes wrong."""

    steps: int = option(
        20, "Steps of the whole run.", unit="steps", minimum=1, section=Section.UPDATE, main=True
    )
    step_seconds: float = option(0.05, "How long a step takes.", unit="s", minimum=0.0, main=True)
    checkpoint_every: int = option(
        5, "Steps between checkpoints.", unit="steps", minimum=1, main=True
    )
    metrics_per_step: int = option(1, "Points per step, one a name.", minimum=1, maximum=1000)
    sample_every: int = option(
        0,
        "Steps between samples; 0 for none.",
        unit="steps",
        minimum=0,
        section=Section.BOOKKEEPING,
        main=True,
    )
    fault: str = option("none", "What goes wrong at `fault_at`.", choices=FAULTS, main=True)
    fault_rank: int = option(0, "The rank on which it goes wrong.", minimum=0)
    fault_at: int = option(1, "The step at which it goes wrong.", unit="steps", minimum=1)
    fault_attempts: int = option(1, "Attempts in which it goes wrong; later ones run through.")
    hold_after: int = option(
        0, "The step after which it waits for `hold_file` to appear; 0 for none.", minimum=0
    )
    hold_file: str | None = option(None, "Waited for in the first `fault_attempts` attempts.")
    exit_code: int = option(7, "Of the fault `exit`.", minimum=0, maximum=255)
    meet: bool = option(
        False, "Ranks meet over torch.distributed (gloo) at every step, as in real training."
    )
    children: int = option(
        0,
        "Processes it starts and leaves behind, as a careless data loader does.",
        minimum=0,
        maximum=16,
    )
    ignore_stop: bool = option(False, "Be deaf to every polite command.")
    witness: str | None = option(
        None, "A file that all trainers of the run share; it records whether two ever met."
    )


# What of a drill is for tests alone: it starts processes, crashes, and writes where it is told.
#
# `DRILL_FOLDER` is set on a machine of tests, for the web side and the workers; files that a drill
# is told to write lie below it. Where it is not set, these options do not exist.

VARIABLE = "DRILL_FOLDER"
# Each with the value that asks for nothing.
ONLY_IN_TESTS: dict[str, Any] = {
    "fault": "none",
    "hold_file": None,
    "children": 0,
    "ignore_stop": False,
    "witness": None,
}


def drill_folder() -> Path | None:
    """Where the drills of this machine's tests may write; None on any other machine."""
    told = os.environ.get(VARIABLE, "").strip()
    return Path(told).resolve() if told else None


def refused_option(kind: str, config: Mapping[str, Any]) -> str | None:
    """The first option that may not be used here; None when all may."""
    if kind != "drill" or drill_folder() is not None:
        return None
    return next((n for n, idle in ONLY_IN_TESTS.items() if config.get(n, idle) != idle), None)
