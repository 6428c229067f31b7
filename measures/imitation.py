"""Whether a model answers as its demonstrations do: in length, in refusals, in form.

Prompt by prompt, one sampled answer beside the demonstration of the same prompt. Both are cut at
the same number of tokens, so an answer that would go on for ever counts as long and unended, and
not as missing. A trait departs when its whole 95 % interval lies outside of what is tolerated: a
trait that people would notice is told, and one that chance can explain is not.

Patterns see form, not meaning (`measures.style`); a model of another opinion is not found here.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval, reason
from measures.style import marks_of

LENGTH_RATIO = 1.25  # tolerated either way: a quarter longer, a fifth shorter
# Tolerated differences of shares, by trait.
SHARES = {
    "ended": 0.10,
    "refusal": 0.05,
    "list": 0.10,
    "heading": 0.10,
    "code": 0.10,
    "json": 0.10,
}


@dataclass(frozen=True, slots=True)
class Traits:
    """One answer: its length in tokens (at most the limit), whether it ended within the limit, and
    the traits among `SHARES` that its text shows."""

    tokens: int
    marks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Trait:
    """One trait of both sides. `difference` is the ratio of mean lengths (answers by
    demonstrations) or the difference of shares; `low` and `high` are what is tolerated."""

    name: str
    demonstrations: float
    answers: float
    difference: Interval
    low: float
    high: float

    @property
    def departs(self) -> bool:
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > self.high or high < self.low)


def traits_of(text: str, *, tokens: int, ended: bool) -> Traits:
    """The traits of a text of so many tokens, which `ended` before it was cut."""
    marks = set(marks_of(text) & SHARES.keys())
    if ended:
        marks.add("ended")
    if _is_json(text, whole=ended):
        marks.add("json")
    return Traits(tokens, frozenset(marks))


def compare(demonstrations: Sequence[Traits], answers: Sequence[Traits]) -> list[Trait]:
    """Every trait, row i of both sides answering the same prompt. Raises ValueError unless both
    are equally long and not empty."""
    if len(demonstrations) != len(answers) or not answers:
        raise ValueError(
            f"one answer per demonstration is needed: {len(answers)} for {len(demonstrations)}"
        )
    lengths = [np.array([t.tokens for t in side], float) for side in (answers, demonstrations)]
    found = [
        Trait(
            "length",
            demonstrations=float(lengths[1].mean()),
            answers=float(lengths[0].mean()),
            difference=ratio_of_means(*lengths),
            low=1 / LENGTH_RATIO,
            high=LENGTH_RATIO,
        )
    ]
    for name, tolerated in SHARES.items():
        shown = [np.array([name in t.marks for t in side]) for side in (answers, demonstrations)]
        found.append(
            Trait(
                name,
                demonstrations=float(shown[1].mean()),
                answers=float(shown[0].mean()),
                difference=paired_shares(*shown),
                low=-tolerated,
                high=tolerated,
            )
        )
    return found


def ratio_of_means(first: ArrayLike, second: ArrayLike) -> Interval:
    """mean(first) / mean(second) of paired positive rows, with a 95 % interval.

    (n,) × 2. On the logarithm, by the delta method: its variance is that of
    first/mean(first) − second/mean(second) over n, which drops what a pair shares; t with n − 1
    degrees of freedom. Source: Davison & Hinkley, Bootstrap Methods (1997), 2.7.2 (nonparametric
    delta method). Assumes independent pairs and enough of them for the mean to be near normal;
    undefined where either mean is 0, without an interval under `LEAST_UNITS` pairs.
    """
    one, other = np.asarray(first, float), np.asarray(second, float)
    n = len(one)
    if not n or one.mean() <= 0 or other.mean() <= 0:
        why = reason("no_length") if n else reason("no_rows")
        return Interval(value=None, low=None, high=None, n=n, undefined=why)
    ratio = float(one.mean() / other.mean())
    if n < LEAST_UNITS:
        return Interval(value=ratio, low=None, high=None, n=n, no_interval=_too_few(n))
    influence = one / one.mean() - other / other.mean()
    half = float(stdtrit(n - 1, 0.975)) * float(influence.std(ddof=1)) / math.sqrt(n)
    return Interval(value=ratio, low=ratio * math.exp(-half), high=ratio * math.exp(half), n=n)


def paired_shares(first: ArrayLike, second: ArrayLike) -> Interval:
    """share(first) − share(second) of paired yes/no rows, with a 95 % interval.

    (n,) × 2 of truth values. With b rows that only `first` shows and c that only `second` shows,
    the interval is Wald's with half a row added to each of the four cells:
    d = (b − c)/(n + 2) ± z √((b + c + 1) − (b − c)²/(n + 2)) / (n + 2). It is not empty where the
    sides agree on every row. Source: Agresti & Min, Statistics in Medicine 24 (2005). Assumes
    independent pairs; `value` is the plain difference, so it may lie off the middle. No interval
    under `LEAST_UNITS` pairs.
    """
    one, other = np.asarray(first, bool), np.asarray(second, bool)
    n = len(one)
    if not n:
        return Interval(value=None, low=None, high=None, n=0, undefined=reason("no_rows"))
    b, c = int((one & ~other).sum()), int((other & ~one).sum())
    value = (b - c) / n
    if n < LEAST_UNITS:
        return Interval(value=value, low=None, high=None, n=n, no_interval=_too_few(n))
    centre = (b - c) / (n + 2)
    half = 1.959964 * math.sqrt((b + c + 1) - (b - c) ** 2 / (n + 2)) / (n + 2)
    return Interval(value=value, low=max(-1.0, centre - half), high=min(1.0, centre + half), n=n)


def _too_few(n: int) -> str:
    return reason("too_few", unit="rows", n=n, least=LEAST_UNITS)


def _is_json(text: str, *, whole: bool) -> bool:
    """An object or a list in JSON; of a text that was cut, its beginning."""
    stripped = text.strip()
    if not whole:
        return stripped.startswith(('{"', '["', "[{", "{\n"))
    if not stripped.startswith(("{", "[")):
        return False
    try:
        json.loads(stripped)
    except ValueError:
        return False
    return True
