"""Who waits for whom: the parts of a step by time, and what to do about the longest. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLOW = 0.5  # a part that takes this share of a step is what the others wait for
LEAST_STEPS = 3  # one step alone may have been the first, with everything cold

# What each part is, and what shortens it, the cheapest first.
PARTS: dict[str, tuple[str, str]] = {
    "rollout": (
        "generation",
        "Answer in larger batches (rollout_chunk), shorten max_new_tokens, or sample on a machine "
        "of its own.",
    ),
    "reward": (
        "the reward",
        "Score in larger batches (reward_batch_size), let answers be scored while others are "
        "generated (rollout_chunk), cache scores, or give the reward model its own device.",
    ),
    "update": (
        "the update",
        "Fewer passes over each batch (update_epochs), low-rank adapters (lora_rank), and a larger "
        "token budget (max_tokens_per_batch).",
    ),
    "other": (
        "what is neither generation, reward nor update",
        "Look at evaluations and checkpoints: eval_every, eval_prompts, save_every.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """`part` is a key of PARTS, or None where no part takes half of a step. Shares are of the whole
    time of the steps looked at and sum to 1; seconds are means per step."""

    part: str | None
    share: float | None
    shares: Mapping[str, float]
    seconds: Mapping[str, float]
    steps: int
    tokens_per_second: float | None
    message: str

    def to_json(self) -> dict[str, object]:
        return {
            "part": self.part,
            "share": self.share,
            "shares": dict(self.shares),
            "seconds": dict(self.seconds),
            "steps": self.steps,
            "tokens_per_second": self.tokens_per_second,
            "message": self.message,
        }


def bottleneck(
    steps: Sequence[Mapping[str, float | None]], *, tokens: Sequence[float] | None = None
) -> Bottleneck:
    """Names the part of a step that the others wait for.

    Each step holds time/rollout_s, time/reward_wait_s, time/update_s and, where measured,
    time/reward_s and time/step_s, in seconds. Scoring that went on while answers were generated
    costs nothing: what counts is reward_wait_s, the time nothing else could be done, and only
    where that is absent reward_s. `tokens`: generated tokens of each step, for the throughput.

    The first of at least four steps is left out, for it warms everything up. A part is named from
    half of the time on.
    """
    looked = list(steps[1:]) if len(steps) > LEAST_STEPS else list(steps)
    kept_tokens = list(tokens or [])[-len(looked) :] if looked else []
    totals = dict.fromkeys(PARTS, 0.0)
    for step in looked:
        for part, seconds in _parts(step).items():
            totals[part] += seconds
    whole = sum(totals.values())
    if not looked or whole <= 0:
        return Bottleneck(
            part=None,
            share=None,
            shares={},
            seconds={},
            steps=len(looked),
            tokens_per_second=None,
            message="No step was timed, so nothing can be said about what waits.",
        )
    shares = {part: seconds / whole for part, seconds in totals.items()}
    longest = max(shares, key=lambda part: shares[part])
    share = shares[longest]
    name, advice = PARTS[longest]
    spread = ", ".join(
        f"{PARTS[part][0]} {100 * shares[part]:.0f} %"
        for part in ("rollout", "reward", "update", "other")
        if part != "other" or shares[part] >= 0.05
    )
    if share >= SLOW:
        said = f"Every step waits for {name}: {100 * share:.0f} % of its time ({spread}). {advice}"
    else:
        said = f"No part holds the others up: {spread} of a step's time."
    return Bottleneck(
        part=longest if share >= SLOW else None,
        share=share if share >= SLOW else None,
        shares=shares,
        seconds={part: seconds / len(looked) for part, seconds in totals.items()},
        steps=len(looked),
        tokens_per_second=sum(kept_tokens) / whole if kept_tokens else None,
        message=said,
    )


def _parts(step: Mapping[str, float | None]) -> dict[str, float]:
    """Seconds of one step by part."""
    rollout = step.get("time/rollout_s") or 0.0
    waited = step.get("time/reward_wait_s")
    reward = (step.get("time/reward_s") if waited is None else waited) or 0.0
    update = step.get("time/update_s") or 0.0
    whole = step.get("time/step_s")
    other = max(0.0, whole - rollout - reward - update) if whole is not None else 0.0
    return {"rollout": rollout, "reward": reward, "update": update, "other": other}
