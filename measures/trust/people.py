"""Does the model rank outputs as people do?"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from measures.blocks import Curve, Series, number, plain
from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, unmeasured

LEAST_RANK = 0.7
LEAST_OUTPUTS = 30
LEAST_GRADES = 2
# Variance of atanh of a rank correlation, times n − 3: Fieller, Hartley & Pearson 1957.
_FISHER = 1.06
_Z95 = 1.959964


def people_rank(
    scores: ArrayLike,
    grades: Sequence[tuple[float, int]],
    *,
    single_grades: Sequence[Sequence[float]] | None = None,
) -> Finding:
    """Spearman's rank correlation between scores and people's mean grades.

    scores: (n,) raw; grades: (n,) (mean grade, number of grades), higher is better, one scale;
    single_grades: (n,) the grades behind the means, to say how reliable those are. Outputs with
    fewer than 2 grades are left out, and fewer than 30 outputs are not judged. Red where the lower
    end lies under 0.7: at n = 100 a correlation of 0.7 is known only to 0.58–0.79.
    """
    enough = np.array([n >= LEAST_GRADES for _, n in grades], dtype=bool)
    own = np.asarray(scores, dtype=float)[enough]
    people = np.array([mean for mean, _ in grades], dtype=float)[enough]
    n = len(own)
    if n < LEAST_OUTPUTS:
        waiting = len(grades) - n
        why = f"{n} outputs have at least {LEAST_GRADES} grades; {LEAST_OUTPUTS} are needed"
        why += f", and {waiting} still wait for grades." if waiting else "."
        return unmeasured("people_rank", why)
    found = spearman(own, people)
    evidence = (_points(own, people),)
    if found.value is None and np.ptp(people) == 0:
        return unmeasured(
            "people_rank", f"People gave all {n} outputs the same grade.", evidence=evidence
        )
    if found.value is None:
        return Finding(
            line="people_rank",
            verdict=Verdict.RED,
            says=f"The model scores all {n} outputs alike, and people do not.",
            evidence=evidence,
        )
    kept = [one for one, use in zip(single_grades or (), enough, strict=False) if use]
    trust = reliability(kept)
    facts = {"correlation": found.value, "outputs": n, "reliability": trust}
    says = f"Rank correlation with people's grades is {number(found)} on {n} outputs"
    if found.low is not None and found.low >= LEAST_RANK:
        verdict, says = Verdict.GREEN, f"{says}: at least {LEAST_RANK}."
    elif found.value >= LEAST_RANK:
        verdict = Verdict.RED
        says = f"{says}: that it is at least {LEAST_RANK} is not shown by so few."
    else:
        verdict, says = Verdict.RED, f"{says}: under {LEAST_RANK}."
    if trust is not None and trust > 0:
        facts["corrected"] = corrected = min(1.0, found.value / math.sqrt(trust))
        says += (
            f" The reliability of people's mean grades is {plain(trust)}; against grades without "
            f"noise it would be about {plain(corrected)}."
        )
    return Finding(
        line="people_rank",
        verdict=verdict,
        says=says,
        figure=found,
        unit="number",
        evidence=evidence,
        facts=facts,
    )


def spearman(one: ArrayLike, other: ArrayLike) -> Interval:
    """Spearman's ρ of two (n,) lists, tied values sharing their mean rank, with a 95 % interval.

    tanh(atanh ρ ± 1.96 √(1.06/(n − 3))). Sources: Spearman 1904; Fieller, Hartley & Pearson,
    Biometrika 44 (1957). Assumes independent pairs; made for |ρ| up to about 0.8, beyond it the
    interval is a little short. Undefined where either list does not vary; ρ = ±1 and fewer than
    `LEAST_UNITS` pairs have no interval.
    """
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"two lists of a length, not {a.shape} and {b.shape}")
    n = len(a)
    if n < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Interval(value=None, low=None, high=None, n=n, undefined="one side does not vary")
    from scipy.stats import rankdata  # a quarter of what a process loads at its start

    rho = float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
    if n < LEAST_UNITS:
        return Interval(value=rho, low=None, high=None, n=n, no_interval=f"too few pairs: {n}")
    if abs(rho) >= 1 - 1e-12:
        return Interval(value=rho, low=rho, high=rho, n=n)
    half = _Z95 * math.sqrt(_FISHER / (n - 3))
    z = math.atanh(rho)
    return Interval(value=rho, low=math.tanh(z - half), high=math.tanh(z + half), n=n)


def reliability(single_grades: Sequence[Sequence[float]]) -> float | None:
    """Share of the variance of mean grades that is the outputs' and not the graders', 0–1.

    1 − (mean variance of a mean)/(variance of the means), the variance of a single grade pooled
    over outputs: the intraclass correlation of means, ICC(1, k) (Shrout & Fleiss 1979), with each
    output's own number of grades. A correlation with noisy grades is lower by its square root
    (Spearman 1904). None where fewer than two outputs have two grades, or the means do not vary.
    """
    rows = [np.asarray(row, dtype=float) for row in single_grades if len(row) >= LEAST_GRADES]
    if len(rows) < 2:
        return None
    within = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    within /= sum(len(row) - 1 for row in rows)
    between = float(np.var([row.mean() for row in rows], ddof=1))
    if between <= 0:
        return None
    noise = within * float(np.mean([1 / len(row) for row in rows]))
    return max(0.0, 1 - noise / between)


def _points(scores: np.ndarray, people: np.ndarray) -> Curve:
    order = np.argsort(scores, kind="stable")
    return Curve(
        title="Score and people's mean grade",
        series=(
            Series(
                label="outputs",
                x=tuple(scores[order].tolist()),
                y=tuple(people[order].tolist()),
                points=True,
            ),
        ),
        x_label="raw score",
        y_label="mean grade",
    )
