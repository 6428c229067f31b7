"""Hard constraints as a filter: what breaks one is blocked, logged, and shown to people."""

from collections.abc import Sequence

from workers.audit import write_lines
from workers.context import RunContext
from workers.contract.events import Alert, ReviewRequested, Sample
from workers.data.snapshot import Messages
from workers.rewards.source import RewardSource

SHOWN = 20  # of each kind, in the log, as samples and for people; blocked.jsonl has them all


def screen(
    context: RunContext,
    source: RewardSource,
    prompts: Sequence[Messages],
    responses: Sequence[str],
    *,
    step: int = 1,
) -> list[bool]:
    """Per response whether it may be used; the reasons go to blocked.jsonl, the log and people."""
    scores = source.score(prompts, responses)
    blocked = scores.blocked or [False] * len(responses)
    reviews = scores.reviews or [None] * len(responses)
    rows = [
        {"prompt": prompt, "response": text, "reason": reason or "blocked", "blocked": hard}
        for prompt, text, reason, hard in zip(prompts, responses, reviews, blocked, strict=True)
        if hard or reason
    ]
    if not rows:
        return [True] * len(responses)
    path = context.workdir / "blocked.jsonl"
    write_lines(path, rows)
    context.save_artifact(path, media_type="application/x-ndjson")
    for row in rows[:SHOWN]:
        word = "blocked" if row["blocked"] else "for review"
        context.log(f"{word}: {row['reason']}", level="warning")
        context.emit(
            ReviewRequested(step, list(row["prompt"]), row["response"], str(row["reason"]))
        )
        context.emit(Sample(step, "flagged", list(row["prompt"]), row["response"]))
    if count := sum(blocked):
        context.emit(
            Alert(
                rule="blocked_outputs",
                severity="warning",
                step=step,
                message=f"{count:,} of {len(responses):,} answers break a hard constraint and were "
                "left out. blocked.jsonl has each with its reason.",
                value=count / len(responses),
                threshold=0.0,
            )
        )
    return [not hard for hard in blocked]
