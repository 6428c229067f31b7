"""Do votes agree from item to item as unevenly as the model says?

A model of the voters holds that, given the truth, annotators err each for themselves. Where
comparisons differ in difficulty, or people err together (a copied answer, a clique, an attractive
wrong answer that only experts see through), some items are more unanimous and others more split
than that allows, while the votes on average may still be predicted well. So crowds are drawn from
the fit, with the same people on the same items, and the spread of agreement is compared.
"""

import numpy as np

from measures.consensus.fitting import Fit
from measures.consensus.posterior import Floats
from measures.consensus.reliability import Ranged
from measures.consensus.votes import N_CHOICES, Ints

DRAWS = 10


def dispersion(fit: Fit, items: Ints, annotators: Ints, choices: Ints) -> Ranged | None:
    """Variance over items of the share of agreeing pairs, observed over expected under the fit.

    items, annotators, choices: (m,) votes, all of an item's or none, each item with at least two.
    1 is as the model says; above 1, annotators do not err independently. A posterior predictive
    check (Gelman, Meng & Stern, Statistica Sinica 6, 1996) at the fitted parameters: ten crowds are
    drawn, truths from the priors and votes from the matrices. Interval: normal, from the fourth
    moment over items and the scatter of the draws. None where all items agree alike.
    """
    _, item = np.unique(items, return_inverse=True)
    n_items = int(item.max()) + 1
    observed = _agreement(item, choices, n_items)
    rng = np.random.default_rng(0)
    truth_steps = np.cumsum(fit.priors)[:-1]
    vote_steps = np.cumsum(fit.confusion, axis=2)[:, :, :-1]
    drawn = np.empty(DRAWS)
    for i in range(DRAWS):
        truth = (rng.random(n_items)[:, None] > truth_steps).sum(axis=1)
        steps = vote_steps[annotators, truth[item]]
        votes = (rng.random(len(item))[:, None] > steps).sum(axis=1)
        drawn[i] = _agreement(item, votes, n_items).var()
    expected = float(drawn.mean())
    if expected < 1e-12 or n_items < 2:
        return None
    squares = (observed - observed.mean()) ** 2
    ratio = float(squares.mean()) / expected
    half = 1.96 * float(np.hypot(squares.std() / np.sqrt(n_items), drawn.std(ddof=1))) / expected
    return Ranged(ratio, ratio - half, ratio + half)


def _agreement(item: Ints, choices: Ints, n_items: int) -> Floats:
    """(n_items,) share of an item's pairs of votes that agree."""
    cells = np.bincount(item * N_CHOICES + choices, minlength=n_items * N_CHOICES)
    counts = cells.reshape(n_items, N_CHOICES).astype(np.float64)
    total = counts @ np.ones(N_CHOICES)
    return ((counts * (counts - 1)) @ np.ones(N_CHOICES)) / (total * (total - 1))
