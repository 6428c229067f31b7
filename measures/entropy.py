"""How undecided a split of votes is: entropy in bits, drawn in where votes are few."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

Floats = NDArray[np.float64]


def vote_entropy(counts: ArrayLike, *, offered: ArrayLike | None = None) -> Floats:
    """(n,) expected entropy, in bits, of how people choose on each comparison.

    counts: (n, choices) votes per choice; offered: (choices,) which choices annotators have, all
    when not said. The posterior mean of H = −Σ p_k log₂ p_k under a Dirichlet prior that weighs one
    vote, 1/K for each of the K choices offered (Perks): with a_k = n_k + 1/K and A = Σ a_k,
    E[H] = ψ(A + 1) − Σ (a_k/A) ψ(a_k + 1) nats. Source: Wolpert & Wolf, Physical Review E 52
    (1995), eq. 9.

    The plain entropy of the counts calls 1 : 1 as undecided as 5 : 5, and one vote as settled as
    five that agree; this ranks the comparison with more evidence for a split higher, and few votes
    between split and settled. Assumes votes are independent given the comparison. Between 0 and
    log₂ K; NaN without votes, where nothing is known.
    """
    votes = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    if votes.ndim != 2 or not np.isfinite(votes).all() or (votes < 0).any():
        raise ValueError("counts must be a table of votes per choice, none negative")
    shown = np.ones(votes.shape[1], dtype=bool) if offered is None else np.asarray(offered, bool)
    shown = shown | (votes.sum(axis=0) > 0)
    if not shown.any():
        return np.full(len(votes), np.nan)
    weighed = votes[:, shown] + 1 / shown.sum()
    total = weighed.sum(axis=1)
    nats = digamma(total + 1) - (weighed * digamma(weighed + 1)).sum(axis=1) / total
    return np.where(votes.sum(axis=1) > 0, np.maximum(nats, 0.0) / math.log(2), np.nan)
