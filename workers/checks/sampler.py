"""Do answers come from the very distribution that learns? Their surprise against the entropy.

Where they do, the surprise of a token exceeds the entropy by nothing on average
(`workers.models.invariants.sampler_z`). Asked of answers drawn now, and of those that the run kept
last, if the policy has hardly moved since it drew them.
"""

from dataclasses import dataclass

import numpy as np
import torch

from measures.blocks import Table
from measures.intervals import mean_interval
from workers.checks.asking import (
    BATCH,
    Asked,
    Speaker,
    as_responses,
    ask,
    encode_again,
    evaluation_sampling,
    fixed_prompts,
    looked_at,
    speaker,
)
from workers.checks.found import CONFIRMS, REFUTES, UNDECIDED, Found, Pace, interval
from workers.checks.kept import ROLE, KeptAnswer, read_kept
from workers.config.inference import CheckSettings
from workers.context import RunContext
from workers.contract.numbers import percent, signed
from workers.models.invariants import SAMPLER_ERRORS, sampler_z

KEPT = 128
LEAST = 16  # answers
MOVED = 0.05  # nats per token: from here on kept answers are an older policy's
WHOLE = 0.95  # share of kept answers that must encode again, for what is left out is no chance


@dataclass(frozen=True, slots=True)
class Surprise:
    """z: standard errors; surprise, entropy: nats per token, means over all tokens."""

    n: int
    z: float
    surprise: float
    entropy: float


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    policy = speaker(context, "policy")
    prompts = fixed_prompts(context, settings, policy.tokenizer)
    parts = list(
        ask(
            policy,
            prompts.ids,
            evaluation_sampling(context, settings),
            pace.parts(len(prompts), BATCH, "answering the fixed prompts"),
        )
    )
    fresh = surprise_of(parts)
    kept, why = None, ""
    if context.has_input(ROLE):
        rows = read_kept(context, last=min(KEPT, settings.last))
        newest = [row for row in rows if row.step == rows[-1].step]
        kept, why = of_kept(newest, policy, pace)
    entropy = mean_interval([e for part in parts for e in _per_answer(part)])
    outcome, words = judge(fresh, kept, why)
    return Found(
        outcome=outcome,
        words=words + pace.remark,
        n=fresh.n + (kept.n if kept else 0),
        figures={
            "z": fresh.z,
            "surprise": fresh.surprise,
            "entropy": interval(entropy),
            "kept_z": kept.z if kept else None,
            "kept_surprise": kept.surprise if kept else None,
            "kept_entropy": kept.entropy if kept else None,
            "kept_answers": kept.n if kept else 0,
        },
        details={
            "step": settings.step,
            "temperature": settings.temperature,
            "kept_left_out": why,
            "answers": [
                {
                    "prompt": prompts.messages[i][-1]["content"],
                    "response": part.responses.texts[i - part.rows.start],
                    "tokens": int(part.responses.lengths[i - part.rows.start]),
                }
                for part in parts
                for i in range(part.rows.start, part.rows.start + len(part.responses.texts))
            ],
        },
        evidence=(
            Table(
                title="Surprise and entropy, nats a token",
                columns=("Answers", "Number", "Surprise", "Entropy", "Standard errors apart"),
                formats=("text", "count", "number", "number", "number"),
                rows=tuple(
                    (name, one.n, one.surprise, one.entropy, one.z)
                    for name, one in (("drawn now", fresh), ("kept by the run", kept))
                    if one is not None
                ),
                note=f"Past {SAMPLER_ERRORS:g} standard errors they are not one distribution.",
            ),
        ),
    )


def surprise_of(parts: list[Asked]) -> Surprise:
    """Over all answers together: sums per answer, as `sampler_z` wants them."""
    sums, tokens, surprise, entropy = [], 0, 0.0, 0.0
    for part in parts:
        mask = part.responses.response_mask.bool()
        gap = torch.where(mask, -part.own - part.entropy, torch.zeros_like(part.own))
        sums.append(gap.sum(1))
        tokens += int(mask.sum())
        surprise -= float(part.own[mask].sum())
        entropy += float(part.entropy[mask].sum())
    column = torch.cat(sums)[:, None]  # one number an answer: surprise less entropy
    z = sampler_z(-column, torch.zeros_like(column), torch.ones_like(column))
    return Surprise(len(column), z, surprise / max(1, tokens), entropy / max(1, tokens))


def of_kept(rows: list[KeptAnswer], policy: Speaker, pace: Pace) -> tuple[Surprise | None, str]:
    """Of the answers of the run's last kept step, or why they cannot tell."""
    encoded = encode_again(rows, policy.tokenizer)
    if len(rows) < LEAST:
        return None, f"the run kept {len(rows)} answers of its last step, which are too few"
    if len(encoded) < WHOLE * len(rows):
        share = percent(len(encoded) / len(rows))
        return None, f"only {share} of the kept answers encode to the tokens they had"
    parts, moved = [], []
    for part in pace.parts(len(encoded), BATCH, "looking at kept answers"):
        batch = encoded[part]
        seen = looked_at(
            policy.model,
            as_responses(batch, policy.tokenizer, policy.model.device),
            part,
            batch[0].answer.temperature,
        )
        parts.append(seen)
        totals = (seen.own * seen.responses.response_mask).sum(1).tolist()
        moved += [
            abs(total - float(row.answer.logprob or 0.0)) / len(row.response)
            for row, total in zip(batch, totals, strict=True)
        ]
    if float(np.mean(moved)) > MOVED:
        return None, (
            f"the policy has moved by {float(np.mean(moved)):.2g} nats a token since it drew them"
        )
    return surprise_of(parts), ""


def judge(fresh: Surprise, kept: Surprise | None, why: str) -> tuple[str, str]:
    """(outcome, words)."""
    said = (
        f"Answers drawn now carry {fresh.surprise:.2f} nats of surprise a token at an entropy of "
        f"{fresh.entropy:.2f}: {signed(fresh.z, 1)} standard errors apart (n = {fresh.n})"
    )
    if kept is not None:
        said += (
            f"; those the run kept, {kept.surprise:.2f} at {kept.entropy:.2f}: "
            f"{signed(kept.z, 1)} (n = {kept.n})"
        )
    elif why:
        said += f"; those the run kept cannot tell, as {why}"
    off = [one for one in (fresh, kept) if one is not None and abs(one.z) > SAMPLER_ERRORS]
    if off:
        wide = off[-1].z > 0
        how = "wider" if wide else "narrower"
        return CONFIRMS, f"{said}. They come from a {how} distribution than the one that learns."
    if fresh.n < LEAST:
        return UNDECIDED, f"{said}. {LEAST} answers or more are needed to tell."
    return REFUTES, f"{said}. They come from the distribution that learns."


def _per_answer(part: Asked) -> list[float]:
    """Mean entropy of each answer, nats per token."""
    mask = part.responses.response_mask
    return ((part.entropy * mask).sum(1) / mask.sum(1).clamp(min=1)).tolist()
