"""Does the model hold on data it was not made for, where rules of thumb may turn around?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from measures.accuracy import pair_credit
from measures.blocks import Block, Intervals
from measures.estimate import Interval
from measures.trust.findings import Finding, Verdict, unmeasured
from measures.trust.significance import Pairs, gap_between, half_width, share_of
from workers.contract.numbers import percent, share
from workers.trust.slices import ByCategory, by_category
from workers.trust.wording import points

Floats = NDArray[np.float64]

LEAST_PAIRS = 50
LEAST_LEAN = 0.05  # of accuracy; what is smaller moves no policy
WIDEST_LEAN = 0.2  # half-width of an interval with which a plain taste would have been seen


def other_domain(
    home: Pairs | None, away: Pairs | None, *, name: str = "the other dataset"
) -> Finding:
    """Red: on the other data the model is not better than a coin by more than chance; or length
    points the other way there while the model still goes by it.

    "Longer wins" is people's choice alone, ties in length ½; it turns around where it is over ½ at
    home and under ½ away, each by more than chance. The model goes by length where it is right more
    often on pairs that the longer answer won than on those that the shorter won (see `lean`), by
    over 5 points and more than chance; where there are too few pairs to show 20 points that is
    unmeasured. How often it prefers the longer would not show it: any noise draws that share
    towards ½, whatever people chose.
    """
    if away is None or not len(away):
        return unmeasured("other_domain", "No other dataset was given.")
    decided = away.decided
    n = int(decided.sum())
    accuracy = share_of(away, away.credit(), where=decided)
    if n < LEAST_PAIRS or accuracy.low is None or accuracy.high is None:
        why = f"{n:,} decided pairs of {name} are too few to tell; {LEAST_PAIRS} or more do."
        return unmeasured("other_domain", why)
    longer_away = longer_wins(away)
    longer_home = longer_wins(home) if home is not None and len(home) else None
    leaning = lean(away)
    evidence = _evidence(home, accuracy, longer_home, longer_away, leaning, name)
    turned = (
        longer_home is not None
        and (longer_home.low or 0.0) > 0.5
        and longer_away.high is not None
        and longer_away.high < 0.5
    )
    by_length = (leaning.low or 0.0) > LEAST_LEAN
    categories = by_category(away)
    facts: dict[str, Any] = {
        "accuracy_away": accuracy.value,
        "longer_home": longer_home.value if longer_home else None,
        "longer_away": longer_away.value,
        "length_turned": turned,
        "lean": leaning.value,
    }
    right = f"Right on {share(accuracy)} of {n:,} pairs of {name}"
    if categories is not None:
        evidence, facts = (categories.table(), *evidence), facts | categories.facts()
        right += _lowest(categories)
    length = _length_words(longer_home, longer_away, turned)
    if accuracy.high < 0.5:
        verdict, says = Verdict.RED, f"{right}: worse than a coin. {length}"
    elif accuracy.low <= 0.5:
        verdict, says = Verdict.RED, f"{right}: cannot be told from a coin. {length}"
    elif turned and by_length:
        verdict = Verdict.RED
        says = (
            f"{right}, but {length[0].lower()}{length[1:]} The model still goes by length: it is "
            f"right {points(leaning)} more often where the longer answer won."
        )
    else:
        verdict, says = Verdict.GREEN, f"{right}. {length}"
        if turned:
            unclear = half_width(leaning) > WIDEST_LEAN
            verdict = Verdict.UNMEASURED if unclear else Verdict.GREEN
            says += f" {_lean_words(leaning, unclear)}"
    return Finding(
        line="other_domain",
        verdict=verdict,
        says=says,
        figure=accuracy,
        evidence=evidence,
        facts=facts,
    )


def _lowest(categories: ByCategory) -> str:
    """The category with the lowest share, of several."""
    known = {name: of for name, of in categories.shares.items() if of.value is not None}
    if len(known) < 2:
        return ""
    name = min(known, key=lambda one: known[one].value or 0.0)
    return f" (lowest in {name}: {share(known[name])}, n = {known[name].n:,})"


def longer_wins(pairs: Pairs) -> Interval:
    """How often people chose the longer answer, ties in length ½, over decided pairs."""
    chosen, rejected = pairs.lengths
    return share_of(pairs, pair_credit(chosen - rejected), where=pairs.decided)


def lean(pairs: Pairs) -> Interval:
    """Accuracy where the longer answer won − accuracy where the shorter won.

    0 for a model that does not look at length, however good or noisy it is. Interval: of the mean
    of the difference's influence values (linearisation; Davison & Hinkley 1997, 2.7.2), over what
    rows share, and at least as wide as that made of the two accuracies' own (MOVER), since a few
    pairs that are all right show no variation. Undefined where either kind of pair is missing.
    """
    chosen, rejected = pairs.lengths
    credit, decided = pairs.credit(), pairs.decided
    longer, shorter = decided & (chosen > rejected), decided & (chosen < rejected)
    kept = longer | shorter
    n = int(kept.sum())
    if not longer.any() or not shorter.any():
        why = "the longer answer always won or always lost"
        return Interval(value=None, low=None, high=None, n=n, undefined=why)
    right = {True: credit[longer].mean(), False: credit[shorter].mean()}
    gap = float(right[True] - right[False])
    values = np.zeros(len(pairs))
    values[longer] = (credit[longer] - right[True]) * n / longer.sum()
    values[shorter] = -(credit[shorter] - right[False]) * n / shorter.sum()
    found = pairs.interval(values + gap, where=kept)
    apart = gap_between(
        share_of(pairs, credit, where=longer), share_of(pairs, credit, where=shorter)
    )
    lows = [of.low for of in (found, apart) if of.low is not None]
    highs = [of.high for of in (found, apart) if of.high is not None]
    if apart.low is None or apart.high is None:
        return Interval(value=gap, low=None, high=None, n=n, no_interval=apart.no_interval)
    return Interval(value=gap, low=min(lows), high=max(highs), n=n)


def _lean_words(leaning: Interval, unclear: bool) -> str:
    if unclear:
        return "There are too few pairs to tell whether the model goes by length there."
    more = f"it is right {points(leaning)} more often where the longer answer won"
    if (leaning.value or 0.0) > LEAST_LEAN:
        return f"That the model goes by length there is not shown beyond chance: {more}."
    return f"The model does not go by length there: {more}."


def _length_words(home: Interval | None, away: Interval, turned: bool) -> str:
    if home is None:
        return f"The longer answer wins there in {share(away)}."
    if turned:
        return (
            f"Length points the other way there: the longer answer wins in {share(away)}, at home "
            f"in {share(home)}."
        )
    return f"The longer answer wins in {share(away)} there and in {share(home)} at home."


def _evidence(
    home: Pairs | None,
    accuracy: Interval,
    longer_home: Interval | None,
    longer_away: Interval,
    leaning: Interval,
    name: str,
) -> tuple[Block, ...]:
    rows = [("the model, elsewhere", accuracy), ("the longer answer wins, elsewhere", longer_away)]
    if home is not None and longer_home is not None:
        at_home = share_of(home, home.credit(), where=home.decided)
        rows += [("the model, at home", at_home), ("the longer answer wins, at home", longer_home)]
    note = "Both on the same decided pairs. Where “the longer wins” lies under one half, the "
    note += "shorter answer wins more often."
    if leaning.value is not None:
        note += f" Away, the model is right {points(leaning)} more often where the longer won."
    return (
        Intervals(
            title="At home and elsewhere",
            rows=tuple(rows),
            reference=0.5,
            reference_label=f"a coin, {percent(0.5)}",
            note=note,
        ),
    )
