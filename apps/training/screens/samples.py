"""The samples tab: answers with what they scored, beside the answer they are compared with."""

from dataclasses import dataclass, field
from typing import Any

from django.core.paginator import Paginator
from django.http import QueryDict

from apps.common.numbers import figure
from apps.common.registry import sample_panel
from apps.training.models import Run
from apps.training.selectors.results import Kept, samples_chosen, samples_of
from measures.duplicates import repeated_share

PER_PAGE = 20
BUCKETS = (("high", "Highest"), ("low", "Lowest"), ("random", "Random"), ("flagged", "Flagged"))
TONES = {"high": "good", "low": "bad", "flagged": "warn", "review": "warn"}
MUCH = 0.2  # of a text repeated: the limit of the guardrail `repetition`


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
            sample_shown(one, panel=panels.get(one.sample.pk) if one.sample else None)
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
    }


def _step(asked: str | None) -> int | None:
    return int(asked) if asked and asked.isdecimal() and len(asked) < 16 else None


def sample_shown(one: Kept, *, panel: Any = None) -> Shown:
    """An answer as the page shows it."""
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
    metrics = [("reward", figure(row.reward), False)] if row.reward is not None else []
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
        parts=[(name, figure(value)) for name, value in row.parts.items()],
        id=row.pk,
        panel=panel,
    )


def _text_metrics(text: str, *, words: bool = True) -> list[tuple[str, str, bool]]:
    found = [("length", f"{len(text.split()):,} words", False)] if words else []
    share = repeated_share(text)
    if share is not None:
        found.append(("repeated", f"{100 * share:.0f} %", share > MUCH))
    return found
