"""What the scores look like as a whole: is there anything in them that a policy could follow, and
do its answers lie where the reward model was trained?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.blocks import Example, Histogram, Table
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, clustered_share, unmeasured
from measures.trust.significance import Pairs, half_width, share_of
from workers.contract.numbers import listed, percent, plain, share

Floats = NDArray[np.float64]

# Scores are log-odds: over a span of 0.0001 no two answers are told apart by anything.
ALIKE = 1e-4
# A hundredth of the span at either end; bell-shaped scores have about 1 % of answers there.
END, PILED = 0.01, 0.5
# A twentieth of the answers; bell-shaped scores have 28 % of their squared deviations there.
FEW, CARRIED = 0.05, 0.9
ONE_PILE = 0.9  # from here on the rest of an unbounded pile counts as outliers
LEAST_PAIRS = 50
LEAST_SCORES = 30
BINS = 30
TAIL = 0.005  # of the training answers at either end: 1 % of them lie outside their own range
MOST_OUTSIDE = 0.05
LEAST_TRAIN = 200  # under which the range's ends are single answers
PSI_BINS = 10


class Shape(StrEnum):
    """The classes of SPEC D10, the gravest first."""

    CONSTANT = "all alike"
    LOW = "all at the lower end"
    HIGH = "all at the upper end"
    ENDS = "all at the two ends"
    SPARSE = "carried by a few outliers (a long tail)"
    FLIPPED = "signs confused"
    UNRELATED = "no relation to people"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Seen:
    """A shape and the number that shows it."""

    shape: Shape
    says: str


def shape_of(scores: ArrayLike) -> Seen:
    """The shape of (n,) raw scores by themselves, without asking people.

    constant: the span is at most 0.0001 (relative to the median where that is larger). Ends: half
    of the answers or more lie within a hundredth of the span from its ends, as in an output that a
    sigmoid, tanh or clipping has pressed against its bounds. Sparse: the 5 % farthest from the
    median hold 90 % of the squared deviations, or 90 % lie in one pile of an unbounded score.
    """
    s = np.asarray(scores, dtype=float)
    low, high = float(s.min()), float(s.max())
    span, middle = high - low, float(np.median(s))
    if span <= ALIKE * max(1.0, abs(middle)):
        near = "" if span == 0 else " or hardly anything else"
        return Seen(Shape.CONSTANT, f"every one of {len(s):,} is {plain(middle)}{near}")
    below = float(np.mean(s <= low + END * span))
    above = float(np.mean(s >= high - END * span))
    outliers = _carried(s, middle)
    if below + above >= PILED and (_bounded(low, high) or max(below, above) < ONE_PILE):
        if min(below, above) >= 0.1:
            return Seen(
                Shape.ENDS,
                f"{percent(below)} of the scores are at {plain(low)} and {percent(above)} at "
                f"{plain(high)}",
            )
        shape, part, end = (Shape.LOW, below, low) if below > above else (Shape.HIGH, above, high)
        return Seen(shape, f"{percent(part)} of the scores are at {plain(end)}")
    if outliers >= CARRIED or max(below, above) >= ONE_PILE:
        return Seen(
            Shape.SPARSE,
            f"{percent(FEW)} of the answers hold {percent(outliers)} of all variation",
        )
    return Seen(Shape.HEALTHY, f"the scores spread from {plain(low)} to {plain(high)}")


def score_shape(
    pairs: Pairs,
    *,
    sft_scores: ArrayLike | None = None,
    policy_scores: ArrayLike | None = None,
) -> Finding:
    """The class of the histogram of a model's scores, and whether they have to do with people.

    After `shape_of` (of the pairs' answers and of the policy's, where there are at least 30) come
    the signs: confused where the accuracy on decided pairs lies under one half by more than
    chance, without relation where it cannot be told from one half. Under 50 decided pairs only a
    bad shape is shown.
    """
    scores = np.concatenate([pairs.chosen_scores, pairs.rejected_scores]).astype(float)
    if len(scores) < LEAST_SCORES:
        return unmeasured(
            "score_shape", f"{len(scores)} scores are too few to show a shape; {LEAST_SCORES} do."
        )
    groups = {
        "chosen": np.asarray(pairs.chosen_scores, dtype=float),
        "rejected": np.asarray(pairs.rejected_scores, dtype=float),
        **_given("SFT model", sft_scores),
        **_given("policy", policy_scores),
    }
    broken = [name for name, values in groups.items() if not np.isfinite(values).all()]
    if broken:
        says = f"Some scores are not numbers at all ({listed(broken)} answers)."
        return _found(Verdict.RED, says, "not finite", ())
    evidence = (histogram(groups),)
    seen = shape_of(scores)
    if seen.shape is not Shape.HEALTHY:
        return _found(
            Verdict.RED, f"The scores are {seen.shape}: {seen.says}.", seen.shape, evidence
        )
    for name in ("SFT model", "policy"):
        if len(groups.get(name, ())) >= LEAST_SCORES:
            there = shape_of(groups[name])
            if there.shape is not Shape.HEALTHY:
                says = f"On the {name}'s answers the scores are {there.shape}: {there.says}."
                return _found(Verdict.RED, says, there.shape, evidence)
    return _signs(pairs, seen, evidence)


def _signs(pairs: Pairs, seen: Seen, evidence: tuple[Histogram, ...]) -> Finding:
    decided = pairs.decided
    accuracy = share_of(pairs, pairs.credit(), where=decided)
    n = int(decided.sum())
    right = f"chosen over rejected in {share(accuracy)} of {n:,} pairs"
    if n < LEAST_PAIRS or accuracy.low is None or accuracy.high is None:
        why = (
            f"{seen.says[0].upper()}{seen.says[1:]}, but {n:,} decided pairs are too few to say "
            f"whether they have to do with people; {LEAST_PAIRS} with enough prompts are needed."
        )
        return unmeasured("score_shape", why, evidence=evidence)
    if accuracy.high < 0.5:
        says = f"Signs confused: {right}, less often than a coin."
        return _found(Verdict.RED, says, Shape.FLIPPED, evidence, accuracy)
    if accuracy.low <= 0.5:
        says = f"No relation to people that can be told from a coin: {right}."
        return _found(Verdict.RED, says, Shape.UNRELATED, evidence, accuracy)
    says = f"Healthy: {seen.says}, and {right}."
    return _found(Verdict.GREEN, says, Shape.HEALTHY, evidence, accuracy)


def histogram(groups: Mapping[str, Floats]) -> Histogram:
    """Shares of each group over common bins of the whole span."""
    everything = np.concatenate(list(groups.values()))
    low, high = float(everything.min()), float(everything.max())
    if high - low <= ALIKE * max(1.0, abs(low)):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    shares = tuple(
        (name, tuple((np.histogram(values, edges)[0] / len(values)).tolist()))
        for name, values in groups.items()
    )
    return Histogram(
        title="Scores",
        edges=tuple(edges.tolist()),
        groups=shares,
        x_label="raw score",
        note="Share of each group's answers in each of 30 equal bins.",
    )


def tops(
    prompts: Sequence[str], answers: Sequence[str], scores: ArrayLike, *, k: int = 10
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """The k highest and the k lowest different answers, best first and worst first."""
    values = np.asarray(scores, dtype=float)
    order = np.argsort(-values, kind="stable").tolist()
    return _first(order, prompts, answers, values, k), _first(
        order[::-1], prompts, answers, values, k
    )


def _first(
    order: Sequence[int],
    prompts: Sequence[str],
    answers: Sequence[str],
    values: Floats,
    k: int,
) -> tuple[Example, ...]:
    taken: dict[tuple[str, str], Example] = {}
    for i in order:
        key = (prompts[i], answers[i])
        if key not in taken:
            taken[key] = Example(
                prompt=prompts[i],
                answer=answers[i],
                score=float(values[i]),
                label=f"{len(taken) + 1}",
            )
        if len(taken) == k:
            break
    return tuple(taken.values())


def _carried(s: Floats, middle: float) -> float:
    """Share of the squared deviations from the median that the farthest 5 % hold."""
    squares = np.sort((s - middle) ** 2)[::-1]
    return float(squares[: max(1, int(FEW * len(s)))].sum() / squares.sum())


def _bounded(low: float, high: float) -> bool:
    """Inside [0, 1] or [−1, 1] and touching a bound, so that the pile is pressed against it."""
    if not -1 <= low <= high <= 1:
        return False
    return high >= 0.99 or low <= -0.99 or (low >= 0 and low <= 0.01)


def _given(name: str, scores: ArrayLike | None) -> dict[str, Floats]:
    values = np.asarray([] if scores is None else scores, dtype=float)
    return {name: values} if len(values) else {}


def _found(
    verdict: Verdict,
    says: str,
    shape: str,
    evidence: tuple[Histogram, ...],
    figure: Interval | None = None,
) -> Finding:
    return Finding(
        line="score_shape",
        verdict=verdict,
        says=says,
        figure=figure,
        evidence=evidence,
        facts={"shape": shape.name.lower() if isinstance(shape, Shape) else shape},
    )


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
