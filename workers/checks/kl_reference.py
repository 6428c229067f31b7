"""Is the divergence that a run reports the one from its registered reference?

Two looks. Answers that the run kept carry what its reference thought of them, so the registered
reference can be asked about the same answers: exact, whatever the policy has learned since. And the
policy answers the run's fixed prompts again, which gives its divergence today, with an interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from measures.blocks import Histogram, Intervals
from measures.estimate import Interval
from measures.intervals import mean_interval
from workers.checks.asking import (
    BATCH,
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
from workers.contract.numbers import number, percent, plain
from workers.data.snapshot import prompt_key
from workers.models.loading import weights_sha256

KEPT = 128  # newest kept answers that the reference is asked about
LEAST_KEPT = 8
SAME = 0.01  # nats per token, median over answers: room for half precision
ZERO = 1e-6  # nats per answer: the run compared a model with itself
EXACT = 1e-3  # share of the figure, within which a repeated evaluation is the same
ERRORS = 3.0  # of the mean, and of the run's own, which is as uncertain
LEAST_ANSWERS = 8
BINS = 20


@dataclass(frozen=True, slots=True)
class Agreement:
    """The registered reference against the run's own, on answers that the run kept."""

    n: int
    apart: float  # nats per token, median of the absolute differences
    agreeing: float  # share of the answers
    itself: bool  # the run's divergence was nothing on every answer
    rows: list[dict[str, Any]]

    @property
    def same(self) -> bool:
        return self.apart <= SAME


def look(context: RunContext, settings: CheckSettings, pace: Pace) -> Found:
    policy, reference = speaker(context, "policy"), speaker(context, "reference")
    agreement = None
    if context.has_input(ROLE):
        kept = read_kept(context, last=min(KEPT, settings.last))
        agreement = compare_kept(kept, reference, pace)
    prompts = fixed_prompts(context, settings, policy.tokenizer)
    per_answer: list[float] = []
    tokens: list[int] = []
    for part in ask(
        policy,
        prompts.ids,
        evaluation_sampling(context, settings),
        pace.parts(len(prompts), BATCH, "answering the fixed prompts"),
        reference=reference.model,
    ):
        per_answer += part.kl
        tokens += part.responses.lengths.tolist()
    keys = [prompt_key(messages) for messages in prompts.messages[: len(per_answer)]]
    fresh = mean_interval(per_answer, clusters=keys, seed=context.spec.seed)
    error = float(np.std(per_answer, ddof=1) / np.sqrt(len(per_answer))) if len(keys) > 1 else 0.0
    outcome, words = judge(agreement, fresh, error, settings.reported)
    return Found(
        outcome=outcome,
        words=words + pace.remark,
        n=len(per_answer),
        figures={
            "kl_per_answer": interval(fresh),
            "kl_per_token": float(np.sum(per_answer) / max(1, np.sum(tokens))),
            "reported": settings.reported,
            "kept_answers": agreement.n if agreement else 0,
            "reference_apart": agreement.apart if agreement else None,
            "reference_agreeing": agreement.agreeing if agreement else None,
        },
        details={
            "step": settings.step,
            "policy_sha256": weights_sha256(policy.model),
            "reference_sha256": weights_sha256(reference.model),
            "answers": [
                {"prompt": messages[-1]["content"], "kl": kl, "tokens": count}
                for messages, kl, count in zip(prompts.messages, per_answer, tokens, strict=False)
            ],
            "kept": agreement.rows if agreement else [],
        },
        evidence=(
            Intervals(
                title="Divergence from the registered reference, nats an answer",
                rows=(("asked now", fresh), *_reported(settings.reported)),
                unit="number",
                reference=0.0,
                reference_label="no divergence",
            ),
            spread(per_answer, "Divergence of single answers", "nats"),
        ),
    )


def _reported(value: float | None) -> tuple[tuple[str, Interval], ...]:
    if value is None:
        return ()
    told = Interval(value=value, low=None, high=None, n=0, no_interval="as the run reported it")
    return (("reported by the run", told),)


def spread(values: Sequence[float], title: str, unit: str) -> Histogram:
    """Of one figure of every answer."""
    counts, edges = np.histogram(values, BINS)
    return Histogram(
        title=title,
        edges=tuple(edges.tolist()),
        groups=(("answers", tuple((counts / max(1, len(values))).tolist())),),
        x_label=unit,
    )


def compare_kept(rows: Sequence[KeptAnswer], reference: Speaker, pace: Pace) -> Agreement | None:
    """None where too few answers encode again to the tokens they had."""
    encoded = encode_again(rows, reference.tokenizer)
    if len(encoded) < LEAST_KEPT:
        return None
    gaps: list[float] = []
    shown: list[dict[str, Any]] = []
    for part in pace.parts(len(encoded), BATCH, "asking the reference about kept answers"):
        batch = encoded[part]
        seen = looked_at(
            reference.model,
            as_responses(batch, reference.tokenizer, reference.model.device),
            part,
            batch[0].answer.temperature,
        )
        for row, total in zip(batch, (seen.own * seen.responses.response_mask).sum(1), strict=True):
            had = float(row.answer.logprob or 0.0) - float(row.answer.kl or 0.0)
            gaps.append(abs(float(total) - had) / len(row.response))
            shown.append({"id": row.answer.id, "kept": had, "registered": float(total)})
    return Agreement(
        n=len(gaps),
        apart=float(np.median(gaps)),
        agreeing=float(np.mean(np.array(gaps) <= SAME)),
        itself=all(abs(row.answer.kl or 0.0) <= ZERO for row in encoded[: len(gaps)]),
        rows=shown,
    )


def judge(
    agreement: Agreement | None, fresh: Interval, error: float, reported: float | None
) -> tuple[str, str]:
    """(outcome, words)."""
    now = f"The policy is {number(fresh)} nats an answer from the reference (n = {fresh.n})"
    if agreement is not None and not agreement.same:
        who = (
            "its divergences were all 0, so the run compared the policy with itself"
            if agreement.itself
            else "the run held another model"
        )
        return CONFIRMS, (
            f"The registered reference thinks otherwise of the kept answers than the run's own: "
            f"{agreement.apart:.2g} nats a token apart (median, n = {agreement.n}); {who}. {now}."
        )
    exact = (
        f" On {percent(agreement.agreeing)} of {agreement.n} kept answers the registered reference "
        "says what the run's own said."
        if agreement is not None
        else ""
    )
    if reported is None:
        if agreement is None:
            return UNDECIDED, f"{now}. The run reported nothing at this step to compare it with."
        return REFUTES, f"{now}.{exact}"
    against = f"{now}, and the run reported {plain(reported)}"
    gap = abs((fresh.value or 0.0) - reported)
    if gap <= EXACT * max(1.0, abs(reported)):
        return REFUTES, f"{against}: the same.{exact}"
    if abs(reported) <= ZERO and error > EXACT:
        return CONFIRMS, (
            f"{against}, which no two different models give: it compared the policy with itself."
        )
    if fresh.n < LEAST_ANSWERS or error == 0.0:
        return UNDECIDED, f"{against}; {fresh.n} answers are too few to tell these apart.{exact}"
    if gap > ERRORS * np.sqrt(2) * error:
        return CONFIRMS, f"{against}: more apart than chance explains.{exact}"
    return REFUTES, f"{against}: no further apart than chance explains.{exact}"
