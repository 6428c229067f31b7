"""The two lines of a reward model's page that need no machine: the votes that came since, and the
grades that people gave."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from measures.blocks import Curve, Series, Table
from measures.estimate import Interval
from measures.intervals import wilson
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.people import LEAST_GRADES, LEAST_OUTPUTS, LEAST_RANK, reliability, spearman
from workers.contract.numbers import listed, number, percent, plain, share

# SPEC D15 asks for advice from new votes and age; the figures are this project's choice.
MOST_DAYS = 30
MOST_NEW = 0.2


def freshness(
    age_days: float | None,
    votes_at_training: int | None,
    votes_since: int | None,
    flipped: tuple[int, int] | None = None,
) -> Finding:
    """Red where the model is over 30 days old, or over 20 votes came since for every 100 that it
    was trained on; the sentence then advises to retrain.

    flipped: (comparisons whose winner is another now, comparisons it was trained on), shown only.
    """
    if age_days is None or votes_at_training is None or votes_since is None:
        return unmeasured(
            "freshness", "When the model was trained, or on which votes, is not known."
        )
    if not votes_at_training:
        return unmeasured("freshness", "The model was trained on none of this project's votes.")
    new = votes_since / votes_at_training
    reasons = []
    if age_days > MOST_DAYS:
        reasons.append(f"it is over {MOST_DAYS} days old")
    if new > MOST_NEW:
        reasons.append(f"over {percent(MOST_NEW)} as many votes came since")
    says = (
        f"Trained {_days(age_days)} ago on {votes_at_training:,} votes; {votes_since:,} came "
        f"since, {percent(new)} as many"
    )
    rows: list[tuple[object, ...]] = [
        ("days since training", age_days, MOST_DAYS),
        ("new votes for each it was trained on", new, MOST_NEW),
    ]
    turned: Interval | None = None
    if flipped is not None and flipped[1]:
        turned = wilson(*flipped)
        says += f"; {share(turned)} of {flipped[1]:,} comparisons have another winner now"
    if reasons:
        says += f". Retrain it: {listed(reasons)}"
    return Finding(
        line="freshness",
        verdict=Verdict.RED if reasons else Verdict.GREEN,
        says=f"{says}.",
        figure=Interval(value=new, low=None, high=None, n=votes_at_training, no_interval="counted"),
        evidence=(
            Table(
                title="How old",
                columns=("", "now", "at most"),
                formats=("text", "number", "number"),
                rows=tuple(rows),
            ),
        ),
        facts={
            "age_days": age_days,
            "votes_at_training": votes_at_training,
            "votes_since": votes_since,
            "new_share": new,
            "flipped_share": turned.value if turned else None,
            "retrain": bool(reasons),
        },
    )


def _days(age: float) -> str:
    whole = int(age)
    if whole < 1:
        return "less than a day"
    return "1 day" if whole == 1 else f"{whole:,} days"


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
