"""How undecided a split of votes is: entropy in bits, drawn in where votes are few."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

Floats = NDArray[np.float64]


def vote_entropy(counts: ArrayLike) -> Floats:
    """(n,) expected entropy, in bits, of how people choose on each comparison.

    counts: (n, choices) votes per choice. The posterior mean of H = −Σ p_k log₂ p_k under a
    Dirichlet prior that weighs one vote, 1/K for each of K choices (Perks): with a_k = n_k + 1/K
    and A = Σ a_k, E[H] = ψ(A + 1) − Σ (a_k/A) ψ(a_k + 1) nats. Source: Wolpert & Wolf, Physical
    Review E 52 (1995), eq. 9. K is the number of choices that were made on this comparison, at
    least two: a prior over all that are offered would find one vote against one more undecided
    than three against three, for the ties that might still come.

    The plain entropy of the counts calls 1 : 1 as undecided as 5 : 5, and one vote as settled as
    five that agree; this ranks the comparison with more evidence for a split higher, and few votes
    between split and settled. Assumes votes are independent given the comparison. Between 0 and
    log₂ K; NaN without votes, where nothing is known.
    """
    votes = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    if votes.ndim != 2 or not np.isfinite(votes).all() or (votes < 0).any():
        raise ValueError("counts must be a table of votes per choice, none negative")
    made = (votes > 0).sum(axis=1)
    support = np.maximum(made, 2)
    weighed = np.where(votes > 0, votes + (1 / support)[:, None], 0.0)
    unmade = np.where(made < 2, (support - made) / support, 0.0)  # one choice that was not made
    total = weighed.sum(axis=1) + unmade
    parts = (weighed * digamma(weighed + 1)).sum(axis=1) + unmade * digamma(unmade + 1)
    nats = digamma(total + 1) - parts / total
    return np.where(made > 0, np.maximum(nats, 0.0) / math.log(2), np.nan)
