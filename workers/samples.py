"""Audit samples: the answers a person should read before trusting a policy.

The highest rewards show what the reward model falls for, the lowest what it misses, and random
ones what the policy usually says. Each stands beside the reference's answer to the same prompt.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from measures.messages import Messages
from measures.phrases import Phrases
from workers.artifacts import file_sha256
from workers.context import RunContext
from workers.contract.events import (
    Fault,
    Generated,
    RecipeError,
    ReviewRequested,
    Sample,
    blocked_reason,
)
from workers.data.snapshot import TRAIN, Preference, evaluation_splits, read_preferences
from workers.rollouts.local import derive_seed

if TYPE_CHECKING:
    from workers.rollouts.drawing import Answer

# Rows that are drawn by seed.


def known_pairs(context: RunContext, role: str, *, most: int) -> list[Preference]:
    """Pairs of the input `role`, whose better answer is known and which nobody learns from: at most
    so many, by seed, held-out rows where there are any. Ties teach nothing. Raises `RecipeError`
    (no_rows) where no pair is decided."""
    folder = context.input_path(role)
    rows: list[Preference] = []
    for split in evaluation_splits(folder):
        rows += _decided(read_preferences(folder, split))
    rows = rows or _decided(read_preferences(folder, TRAIN))
    if not rows:
        told = f"the input '{role}' has no pair of which one answer is the better"
        raise RecipeError("no_rows", Fault.DATA, told)
    return [rows[i] for i in choose(len(rows), most, derive_seed(context.spec.seed, role))]


def _decided(rows: list[Preference]) -> list[Preference]:
    return [row for row in rows if row.chosen != row.rejected and row.confidence > 0.5]


# Answers that are shown while and after a run, for people to read.


def choose(available: int, count: int, seed: int) -> list[int]:
    """`count` of the indices below `available`, by seed, in order."""
    return sorted(random.Random(seed).sample(range(available), min(count, available)))


def emit_samples(
    context: RunContext,
    step: int,
    prompts: Sequence[Messages],
    answers: "Sequence[Answer]",
    *,
    rewards: Sequence[float] | None = None,
    baselines: "Sequence[Answer] | None" = None,
) -> None:
    """One `Sample` of the random bucket per prompt."""
    for i, (prompt, given) in enumerate(zip(prompts, answers, strict=True)):
        context.emit(
            Sample(
                step=step,
                bucket="random",
                prompt=list(prompt),
                response=given.text,
                reward=rewards[i] if rewards else None,
                kl=given.kl,
                tokens=given.tokens,
                baseline=baselines[i].text if baselines else None,
            )
        )


def flag_answer(
    context: RunContext,
    step: int,
    prompt: Messages,
    response: str,
    reason: str,
    *,
    reward: float | None = None,
) -> None:
    """Ask people to look at an answer, and keep it as a sample."""
    context.emit(ReviewRequested(step, list(prompt), response, reason))
    context.emit(Sample(step, "flagged", list(prompt), response, reward=reward))


def blocked_answers(context: RunContext, texts: Sequence[str]) -> dict[int, str]:
    """Why people must see an answer that holds one of the project's blocked phrases, by place."""
    blocked = _phrases(context.spec.phrases)
    found = {i: blocked.first_in(text) for i, text in enumerate(texts)} if blocked else {}
    return {i: blocked_reason(one.phrase) for i, one in found.items() if one is not None}


@cache
def _phrases(phrases: tuple[str, ...]) -> Phrases:
    return Phrases(phrases)


BUCKETS = ("high", "low", "random")


@dataclass(frozen=True, slots=True)
class AuditSample:
    """One line of audit.jsonl."""

    bucket: str
    prompt: Messages
    response: str
    reward: float
    parts: Mapping[str, float]  # reward by component, and the judge where there is one
    kl: float | None  # nats of the sequence
    tokens: int
    baseline: str
    baseline_reward: float | None


def pick(rewards: Sequence[float], count: int, *, seed: int) -> list[tuple[str, int]]:
    """(bucket, index) of `count` answers per bucket; no answer is in two buckets.

    With too few answers the buckets shrink evenly, high and low first served.
    """
    order = sorted(range(len(rewards)), key=lambda i: rewards[i])
    count = min(count, max(1, len(order) // len(BUCKETS)))
    high = order[::-1][:count]
    rest = [i for i in order if i not in high]
    low, rest = rest[:count], rest[count:]
    drawn = random.Random(seed).sample(rest, min(count, len(rest)))
    buckets = {"high": high, "low": low, "random": drawn}
    return [(bucket, i) for bucket in BUCKETS for i in buckets[bucket]]


def publish(context: RunContext, samples: Sequence[AuditSample], *, step: int) -> None:
    """Emit each sample, and all of them as the file audit.jsonl."""
    path = context.workdir / "audit.jsonl"
    write_lines(path, [asdict(sample) for sample in samples])
    for sample in samples:
        context.emit(
            Sample(
                step=step,
                bucket=sample.bucket,
                prompt=list(sample.prompt),
                response=sample.response,
                reward=sample.reward,
                parts=dict(sample.parts),
                kl=sample.kl,
                tokens=sample.tokens,
                baseline=sample.baseline,
            )
        )
    uri = context.save_artifact(path, media_type="application/x-ndjson")
    context.emit(Generated(uri, file_sha256(path), len(samples), "audit"))


OUTPUTS = "outputs.jsonl"


@dataclass(frozen=True, slots=True)
class Output:
    """One line of outputs.jsonl: an answer, and another model's to the same prompt where there is
    one. Scores are in the reward's own unit; `disagreement` is an ensemble's."""

    prompt: Messages
    response: str
    score: float
    disagreement: float | None = None
    other_response: str | None = None
    other_score: float | None = None
    judge_score: float | None = None
    other_judge_score: float | None = None


def publish_outputs(context: RunContext, outputs: Sequence[Output]) -> None:
    """Every answer of the run as the file outputs.jsonl, which people are asked about: audit
    sheets, rankings and adversarial rounds are drawn from it."""
    path = context.workdir / OUTPUTS
    write_lines(path, [asdict(one) for one in outputs])
    uri = context.save_artifact(path, media_type="application/x-ndjson")
    context.emit(Generated(uri, file_sha256(path), len(outputs), "audit"))


def write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """JSON Lines, UTF-8."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
