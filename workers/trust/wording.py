"""What an interval allows to be said, in the words that several lines share."""

import numpy as np

from measures.bootstrap import LEAST_UNITS
from measures.estimate import Interval
from measures.trust.findings import Finding, unmeasured
from measures.trust.significance import LEAST_PAIRS, Bools, Pairs, pairs_needed
from workers.contract.reasons import reason_words


def apart_too_few(pairs: Pairs, where: Bools) -> str:
    """Why rows hang together too much to tell chance from anything, or ""."""
    found = pairs.interval(np.arange(len(pairs), dtype=float), where=where)
    few = found.n_clusters is not None and found.n_clusters < LEAST_UNITS
    return _few_words(found) if few else ""


def points(found: Interval) -> str:
    """A difference of shares: "4.2 points (1.0 to 7.4)"."""
    if found.value is None:
        return "undefined"
    said = f"{_number(found.value)} points"
    if found.low is None or found.high is None:
        return said
    return f"{said} ({_number(found.low)} to {_number(found.high)})"


def against(found: Interval, limit: float) -> str:
    """How a figure that is no fault stands to the limit, in words that end a sentence."""
    said = f"{100 * limit:.0f} points"
    if found.low is None or found.high is None or max(-found.low, found.high) <= limit:
        return f"under {said}"
    return f"not shown to be over {said}"


def undecided_words(limit: float) -> str:
    return f"over {100 * limit:.0f} points here, but not by more than chance; more pairs would tell"


def some(n: int) -> str:
    return "1 pair" if n == 1 else f"{n:,} pairs"


def too_thin(line: str, found: Interval, least: int) -> Finding:
    """Unmeasured, because there is no interval."""
    if not found.n or found.undefined:
        why = "There are no pairs of which people preferred one side"
    elif found.n_clusters is not None and found.n_clusters < LEAST_UNITS:
        why = _few_words(found)
    else:
        why = f"There is no interval: {reason_words(found.no_interval) or 'too few pairs'}"
    return unmeasured(line, f"{why}. Hold out at least {least} pairs of different prompts.")


def more_needed(found: Interval, half: float) -> str:
    """A sentence: a fault of that size could be missed, and how many pairs would show it."""
    needed = pairs_needed(found, half)
    wanted = "" if needed is None else f"; about {max(needed, LEAST_PAIRS):,} would be needed"
    return f"With {some(found.n)}, a fault of {100 * half:.0f} points could be missed{wanted}."


def _number(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}".replace("-", "−")


def _few_words(found: Interval) -> str:
    return (
        f"Different prompts or answers among {some(found.n)}: {found.n_clusters}. An interval "
        f"needs at least {LEAST_UNITS}"
    )
