"""The samples tab: answers with what they scored, beside the answer they are compared with."""

from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Paginator
from django.http import QueryDict

from apps.common.numbers import figure
from apps.common.registry import sample_panel
from apps.training.models import Run, Sample
from apps.training.selectors.results import Kept, samples_chosen, samples_of
from measures.duplicates import repeated_share

PER_PAGE = 20
BUCKETS = (("high", "Highest"), ("low", "Lowest"), ("random", "Random"), ("flagged", "Flagged"))
TONES = {"high": "good", "low": "bad", "flagged": "warn", "review": "warn"}
MUCH = 0.2  # of a text repeated: the limit of the guardrail `repetition`
# What the two texts of a sample are, and its reward: by what its trainer sent along.
REWARD_RUN = ("chosen answer", "rejected answer", "score of the chosen answer")
OF_PART = {
    "row_logprob_per_token": (
        "this model",
        "answer in the data",
        "mean log-probability of the answer in the data, nats per token",
    ),
    "implicit_reward": ("this model", "reference model", "implicit reward, nats × β"),
}
AT_END = frozenset(
    {Run.Kind.SFT, Run.Kind.REWARD, Run.Kind.PROCESS_REWARD, Run.Kind.DPO, Run.Kind.KTO}
)
OTHERS = ("this model", "SFT model", "reward")


@dataclass(frozen=True, slots=True)
class Shown:
    """`figures` are (name, value, whether it stands out); `parts` the reward by component."""

    step: int
    bucket: str
    tone: str
    prompt: list[Any]
    response: str
    baseline: str
    reason: str
    metrics: list[tuple[str, str, bool]]
    baseline_metrics: list[tuple[str, str, bool]] = field(default_factory=list)
    parts: list[tuple[str, str]] = field(default_factory=list)
    said_by: str = OTHERS[0]
    baseline_by: str = OTHERS[1]
    id: int | None = None  # of the stored sample
    panel: Any = None  # what a later app shows below it


def samples_context(run: Run, asked: QueryDict, *, user: Any) -> dict[str, Any]:
    bucket = asked.get("bucket", "") if asked.get("bucket") in dict(BUCKETS) else ""
    chosen = samples_chosen(
        run, bucket=bucket, step=_step(asked.get("step")), until=_step(asked.get("until"))
    )
    page = Paginator(chosen.rows, PER_PAGE).get_page(asked.get("page"))
    total = sum(chosen.counts.values())
    kept = samples_of(list(page))
    below = sample_panel()
    panels = below.panels(run, [one.sample for one in kept if one.sample], user) if below else {}
    return {
        "samples": [
            sample_shown(one, run.kind, panel=panels.get(one.sample.pk) if one.sample else None)
            for one in kept
        ],
        "panel": below,
        "sample_page": page,
        "bucket": bucket,
        "buckets": [("", "All", total)]
        + [(value, label, chosen.counts[value]) for value, label in BUCKETS],
        "steps": chosen.steps,
        "step": chosen.step,
        "any_samples": bool(total),
        "kept_at_end": run.kind in AT_END,
    }


def _step(asked: str | None) -> int | None:
    return int(asked) if asked and asked.isdecimal() and len(asked) < 16 else None


def sample_shown(one: Kept, kind: str, *, panel: Any = None) -> Shown:
    """An answer as the page shows it; `kind` is its run's."""
    row = one.sample
    if row is None:
        review = one.review
        return Shown(
            step=one.step,
            bucket="for people",
            tone=TONES["review"],
            prompt=review.prompt,
            response=review.response,
            baseline="",
            reason=review.reason,
            metrics=_text_metrics(review.response),
        )
    said_by, baseline_by, reward = _words_of(row, kind)
    metrics = [(reward, figure(row.reward), False)] if row.reward is not None else []
    metrics += [("KL", f"{figure(row.kl)} nats", False)] if row.kl is not None else []
    metrics += [("length", f"{row.tokens:,} tokens", False)] if row.tokens is not None else []
    return Shown(
        step=row.step,
        bucket=row.bucket,
        tone=TONES.get(row.bucket, ""),
        prompt=row.prompt if isinstance(row.prompt, list) else [],
        response=row.response,
        baseline=row.baseline,
        reason=one.reason,
        metrics=[*metrics, *_text_metrics(row.response, words=row.tokens is None)],
        baseline_metrics=_text_metrics(row.baseline) if row.baseline else [],
        parts=[(name, figure(value)) for name, value in row.parts.items() if name not in OF_PART],
        said_by=said_by,
        baseline_by=baseline_by,
        id=row.pk,
        panel=panel,
    )


def _words_of(row: Sample, kind: str) -> tuple[str, str, str]:
    """Who said the answer, who what stands beside it, and what the reward is."""
    if kind == Run.Kind.REWARD:
        return REWARD_RUN
    return next((words for part, words in OF_PART.items() if part in row.parts), OTHERS)


def _text_metrics(text: str, *, words: bool = True) -> list[tuple[str, str, bool]]:
    found = [("length", f"{len(text.split()):,} words", False)] if words else []
    share = repeated_share(text)
    if share is not None:
        found.append(("repeated", f"{100 * share:.0f} %", share > MUCH))
    return found
