"""Do the policy's answers lie where the reward model was trained?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.blocks import Table, percent, plain, share
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, clustered_share, unmeasured
from measures.trust.shapes import histogram
from measures.trust.significance import half_width

Floats = NDArray[np.float64]

TAIL = 0.005  # of the training answers at either end: 1 % of them lie outside their own range
MOST_OUTSIDE = 0.05
LEAST_TRAIN = 200  # under which the range's ends are single answers
PSI_BINS = 10


def policy_range(
    train_scores: ArrayLike,
    policy_scores: ArrayLike,
    train_lengths: ArrayLike | None = None,
    policy_lengths: ArrayLike | None = None,
    *,
    clusters: Sequence[str] | None = None,
) -> Finding:
    """Shares of the policy's answers that score, and that are as long, as hardly any training
    answer: outside the middle 99 % of training.

    Red where either lies over 5 % by more than chance; unmeasured where so few answers could not
    have shown that (an interval's half-width is over 5 points). lengths: characters; clusters:
    (policy answers,) prompts, where some have several answers. Also shown: the Kolmogorov–Smirnov
    distance, the largest gap between the two distribution functions (0–1), and the population
    stability index Σ (q − p) ln(q/p) over the deciles of training, with half an answer added to
    each bin (Siddiqi, Credit Risk Scorecards, 2006: over 0.25 is a large shift).
    """
    train, policy = np.asarray(train_scores, dtype=float), np.asarray(policy_scores, dtype=float)
    if not len(policy):
        return unmeasured("policy_range", "No policy answered prompts for this model to score.")
    if len(train) < LEAST_TRAIN:
        return unmeasured(
            "policy_range",
            f"{len(train):,} training answers are too few to know their range; {LEAST_TRAIN} do.",
        )
    labels = [str(i) for i in range(len(policy))] if clusters is None else clusters
    score = _Outside.of(train, policy, labels)
    says = (
        f"{share(score.found)} of the policy's {len(policy):,} answers score outside the middle "
        f"99 % of training ({plain(score.low)} to {plain(score.high)}), {percent(score.above)} "
        "above it"
    )
    seen = [score]
    lengths = [
        np.asarray([] if x is None else x, dtype=float) for x in (train_lengths, policy_lengths)
    ]
    if len(lengths[0]) >= LEAST_TRAIN and len(lengths[1]) == len(policy):
        length = _Outside.of(lengths[0], lengths[1], labels)
        seen.append(length)
        says += (
            f"; {share(length.found)} are longer or shorter than the middle 99 % "
            f"({length.low:,.0f} to {length.high:,.0f} characters)"
        )
    evidence = (
        histogram({"training": train, "policy": policy}),
        _comparison(train, policy, lengths),
    )
    over = [one for one in seen if (one.found.low or 0.0) > MOST_OUTSIDE]
    most = f"{percent(MOST_OUTSIDE)}"
    if over:
        verdict, says = Verdict.RED, f"{says}: over {most}."
    elif any(half_width(one.found) > MOST_OUTSIDE for one in seen):
        verdict, says = Verdict.UNMEASURED, f"{says}; too few answers to tell it from {most}."
    elif any((one.found.value or 0.0) > MOST_OUTSIDE for one in seen):
        verdict, says = Verdict.GREEN, f"{says}: not over {most} beyond chance."
    else:
        verdict, says = Verdict.GREEN, f"{says}: at most {most}."
    return Finding(
        line="policy_range",
        verdict=verdict,
        says=says,
        figure=(over or seen)[0].found,
        evidence=evidence,
        facts={
            "low": score.low,
            "high": score.high,
            "above": score.above,
            "outside": score.found.value,
            "lengths_outside": seen[-1].found.value if len(seen) > 1 else None,
            "ks": ks_distance(train, policy),
            "psi": stability_index(train, policy),
        },
    )


@dataclass(frozen=True, slots=True)
class _Outside:
    """Ends of the middle 99 % of training, the policy's share outside and above."""

    low: float
    high: float
    found: Interval
    above: float

    @classmethod
    def of(cls, train: Floats, policy: Floats, labels: Sequence[str]) -> "_Outside":
        low, high = (float(end) for end in np.quantile(train, [TAIL, 1 - TAIL]))
        outside = (policy < low) | (policy > high)
        found = clustered_share(outside, labels)
        return cls(low, high, found, float(np.mean(policy > high)))


def ks_distance(one: ArrayLike, other: ArrayLike) -> float:
    """Largest gap between the two empirical distribution functions, 0–1."""
    a, b = np.sort(np.asarray(one, dtype=float)), np.sort(np.asarray(other, dtype=float))
    at = np.concatenate([a, b])
    gaps = np.searchsorted(a, at, side="right") / len(a) - np.searchsorted(b, at, "right") / len(b)
    return float(np.abs(gaps).max())


def stability_index(train: ArrayLike, policy: ArrayLike) -> float:
    """Σ (q − p) ln(q/p) over the deciles of training; 0 where both are alike."""
    a, b = np.asarray(train, dtype=float), np.asarray(policy, dtype=float)
    cuts = np.unique(np.quantile(a, np.arange(1, PSI_BINS) / PSI_BINS))
    counts = [
        np.bincount(np.searchsorted(cuts, x, "right"), minlength=len(cuts) + 1) + 0.5
        for x in (a, b)
    ]
    p, q = (count / count.sum() for count in counts)
    return float(((q - p) * np.log(q / p)).sum())


def _comparison(train: Floats, policy: Floats, lengths: Sequence[Floats]) -> Table:
    rows = [_row("score", train, policy)]
    if len(lengths[0]) and len(lengths[1]):
        rows.append(_row("length in characters", *lengths))
    return Table(
        title="The policy's answers beside those of training",
        columns=("", "training, median", "policy, median", "outside", "KS distance", "stability"),
        formats=("text", "number", "number", "share", "number", "number"),
        rows=tuple(rows),
        note="Outside: of the policy's answers, beyond the middle 99 % of training. KS distance: "
        "the largest gap between the two cumulative curves, 0 to 1. Stability index: over 0.25 is "
        "commonly called a large shift. The shares outside decide this line.",
    )


def _row(name: str, train: Floats, policy: Floats) -> tuple[str, float, float, float, float, float]:
    low, high = np.quantile(train, [TAIL, 1 - TAIL])
    return (
        name,
        float(np.median(train)),
        float(np.median(policy)),
        float(np.mean((policy < low) | (policy > high))),
        ks_distance(train, policy),
        stability_index(train, policy),
    )
