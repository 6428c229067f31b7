"""Do the policy's answers lie where the reward model was trained?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.trust.findings import Finding, Table, Verdict, unmeasured
from measures.trust.shapes import histogram
from measures.trust.shares import clustered_share
from measures.trust.wording import percent, plain, share

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
    """Share of the policy's answers that score outside the middle 99 % of the training answers.

    Red where it lies over 5 % by more than chance; unmeasured where so few answers could not have
    shown that (the interval's half-width is over 5 points). lengths: characters, shown beside;
    clusters: (policy answers,) prompts, where some have several answers. Also shown: the
    Kolmogorov–Smirnov distance, the largest gap between the two distribution functions (0–1), and
    the population stability index Σ (q − p) ln(q/p) over the deciles of training, with half an
    answer added to each bin (Siddiqi, Credit Risk Scorecards, 2006: over 0.25 is a large shift).
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
    low, high = (float(end) for end in np.quantile(train, [TAIL, 1 - TAIL]))
    outside = (policy < low) | (policy > high)
    found = clustered_share(outside, labels)
    evidence = (
        histogram({"training": train, "policy": policy}),
        _comparison(train, policy, train_lengths, policy_lengths),
    )
    above = float(np.mean(policy > high))
    says = (
        f"{share(found)} of the policy's {found.n:,} answers score outside the middle 99 % of "
        f"training ({plain(low)} to {plain(high)}), {percent(above)} above it"
    )
    facts = {
        "low": low,
        "high": high,
        "above": above,
        "ks": ks_distance(train, policy),
        "psi": stability_index(train, policy),
    }
    if found.low is not None and found.low > MOST_OUTSIDE:
        verdict, says = Verdict.RED, f"{says}: over {percent(MOST_OUTSIDE)}."
    elif found.low is None or found.high is None or (found.high - found.low) / 2 > MOST_OUTSIDE:
        return unmeasured(
            "policy_range", f"{says}; too few answers to tell it from 5 %.", evidence=evidence
        )
    elif (found.value or 0.0) > MOST_OUTSIDE:
        verdict, says = Verdict.GREEN, f"{says}, not over {percent(MOST_OUTSIDE)} beyond chance."
    else:
        verdict, says = Verdict.GREEN, f"{says}: at most {percent(MOST_OUTSIDE)}."
    return Finding(
        line="policy_range",
        verdict=verdict,
        says=says,
        figure=found,
        evidence=evidence,
        facts=facts,
    )


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


def _comparison(
    train: Floats, policy: Floats, train_lengths: ArrayLike | None, policy_lengths: ArrayLike | None
) -> Table:
    rows = [_row("score", train, policy)]
    if train_lengths is not None and policy_lengths is not None:
        one, other = (np.asarray(x, dtype=float) for x in (train_lengths, policy_lengths))
        if len(one) and len(other):
            rows.append(_row("length in characters", one, other))
    return Table(
        title="The policy's answers beside those of training",
        columns=("", "training, median", "policy, median", "outside", "KS distance", "stability"),
        formats=("text", "number", "number", "share", "number", "number"),
        rows=tuple(rows),
        note="Outside: of the policy's answers, beyond the middle 99 % of training. KS distance: "
        "the largest gap between the two cumulative curves, 0 to 1. Stability index: over 0.25 is "
        "commonly called a large shift. Only the share of scores outside decides this line.",
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
