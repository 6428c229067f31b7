"""Where the members of an ensemble disagree, and whether one of them stands apart."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measures.blocks import Block, Example, Intervals, Texts
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, clustered_share, unmeasured
from measures.trust.people import spearman
from measures.trust.significance import half_width
from workers.contract.numbers import listed, number, percent, plain, share

Floats = NDArray[np.float64]

MOST_FLAGGED = 0.2
# A member that shares less than a quarter (0.5²) of the others' ranking.
APART = 0.5
LEAST_ANSWERS = 30
SHOWN = 6


def disagreement(
    members: Mapping[str, ArrayLike],
    *,
    threshold: float | None,
    spread: ArrayLike | None = None,
    prompts: Sequence[str] = (),
    answers: Sequence[str] = (),
    clusters: Sequence[str] | None = None,
) -> Finding:
    """Share of answers over the ensemble's threshold, and each member's rank correlation with the
    mean of the others.

    members: {name: (n,) raw scores} of the same answers; spread: (n,) the ensemble's own
    disagreement (`workers.rewards`); where it is not given, the deviation over members that were
    standardised on these answers. Red: more than 20 % flagged by more than chance, or a member
    apart (`members_apart`). Under 30 answers, or where so few could not have shown 20 %, it is
    unmeasured.
    """
    names = list(members)
    if len(names) < 2:
        return unmeasured("disagreement", "One model alone has nobody to disagree with.")
    scores = np.array([np.asarray(members[name], dtype=float) for name in names])
    n = scores.shape[1]
    if n < LEAST_ANSWERS:
        return unmeasured(
            "disagreement", f"{n} answers are too few to compare members; {LEAST_ANSWERS} do."
        )
    z = _standardised(scores)
    values = z.std(axis=0) if spread is None else np.asarray(spread, dtype=float)
    rows = [(name, _with_others(z, k)) for k, name in enumerate(names)]
    apart = members_apart(dict(zip(names, scores, strict=True)))
    flagged = None
    if threshold is not None:
        labels = [str(i) for i in range(n)] if clusters is None else clusters
        flagged = clustered_share(values > threshold, labels)
    evidence: list[Block] = [
        Intervals(
            title="Each member's rank correlation with the mean of the others",
            rows=tuple(rows),
            unit="number",
            reference=APART,
            reference_label=f"apart under {plain(APART, 1)}",
        )
    ]
    if len(prompts) == len(answers) == n:
        evidence.append(_most_disputed(scores, values, prompts, answers))
    return _finding(dict(rows), apart, flagged, threshold, tuple(evidence))


def members_apart(members: Mapping[str, ArrayLike]) -> list[str]:
    """Members whose rank correlation with the mean of the others lies under 0.5 by more than
    chance, the worst first.

    The worst is taken out before the rest is looked at again, since it spoils the others' mean as
    well. Of two that do not agree nobody can say which is wrong: both are named. Clusters are not
    considered; the interval is Fisher's over answers.
    """
    left = list(members)
    apart: list[str] = []
    while len(left) > 1:
        z = _standardised(np.array([np.asarray(members[name], dtype=float) for name in left]))
        found = [_with_others(z, k) for k in range(len(left))]
        worst = min(range(len(left)), key=lambda k: found[k].value or 0.0)
        high = found[worst].high
        if high is not None and high >= APART:
            break
        if len(left) == 2:
            return apart + left
        apart.append(left.pop(worst))
    return apart


def auroc(flag: ArrayLike, positive: ArrayLike) -> float | None:
    """P(a positive answer has the higher flag than a negative one), ties ½; None without both.

    flag: (n,) disagreement; positive: (n,) true for what the flag should find. The area under the
    ROC curve is the Mann–Whitney U over its largest value (Hanley & McNeil, Radiology 143, 1982).
    What is positive is for the caller to say: in the tests, the answers on which a member was
    corrupted, against those on which it was left as it was.
    """
    values, found = np.asarray(flag, dtype=float), np.asarray(positive, dtype=bool)
    yes, no = int(found.sum()), int((~found).sum())
    if not yes or not no:
        return None
    from scipy.stats import rankdata  # a quarter of what a process loads at its start

    ranks = rankdata(values)
    return float((ranks[found].sum() - yes * (yes + 1) / 2) / (yes * no))


def _standardised(scores: Floats) -> Floats:
    """(M, n), each member to mean 0 and deviation 1; one that does not vary stays at 0."""
    centred = scores - scores.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12)


def _with_others(z: Floats, member: int) -> Interval:
    found = spearman(z[member], np.delete(z, member, axis=0).mean(axis=0))
    if found.value is None:  # it says the same of every answer, which agrees with nobody
        return Interval(value=0.0, low=0.0, high=0.0, n=z.shape[1])
    return found


def _finding(
    rows: dict[str, Interval],
    apart: list[str],
    flagged: Interval | None,
    threshold: float | None,
    evidence: tuple[Block, ...],
) -> Finding:
    lowest = min(rows, key=lambda name: rows[name].value or 0.0)
    facts = {
        "apart": apart,
        "flagged": flagged.value if flagged else None,
        "threshold": threshold,
        "correlations": {name: of.value for name, of in rows.items()},
    }
    over = (
        f"{share(flagged)} of {flagged.n:,} answers are over the threshold of {plain(threshold)}"
        if flagged and threshold is not None
        else "the ensemble has no threshold for its disagreement"
    )
    too_many = flagged is not None and flagged.low is not None and flagged.low > MOST_FLAGGED
    verdict, unit, figure = Verdict.RED, "share", flagged
    worst = apart[0] if apart else lowest
    ranks = f"rank correlation with the others is {number(rows[worst])}"
    if len(apart) == len(rows):
        says, unit, figure = f"No two members agree: {worst}'s {ranks}", "number", rows[worst]
    elif len(apart) == 1:
        says, unit, figure = f"{worst} stands apart: its {ranks}", "number", rows[worst]
    elif apart:
        says = f"{listed(apart)} stand apart, and most of all {worst}: its {ranks}"
        unit, figure = "number", rows[worst]
    elif too_many:
        says = f"The members disagree too often (at most {percent(MOST_FLAGGED)} may be)"
    else:
        says = f"No member stands apart: the lowest {ranks}, of {worst}"
        told = flagged is not None and half_width(flagged) <= MOST_FLAGGED
        verdict = Verdict.GREEN if told else Verdict.UNMEASURED
    return Finding(
        line="disagreement",
        verdict=verdict,
        says=f"{says}; {over}.",
        figure=figure,
        unit=unit,
        evidence=evidence,
        facts=facts,
    )


def _most_disputed(
    scores: Floats, values: Floats, prompts: Sequence[str], answers: Sequence[str]
) -> Texts:
    order = np.argsort(-values, kind="stable")[:SHOWN]
    return Texts(
        title="Where members disagree most",
        examples=tuple(
            Example(
                prompt=prompts[i],
                answer=answers[i],
                score=float(scores[:, i].mean()),
                label=f"disagreement {plain(float(values[i]))}",
            )
            for i in order.tolist()
        ),
    )
