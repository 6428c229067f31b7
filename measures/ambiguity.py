"""Which prompts people disagree about, told apart from prompts that merely have few votes.

The quantity: the chance that two annotators who judge the same pair of a prompt choose
differently. One split among three votes says little and sixty votes say much, so each prompt's
observed share is drawn towards the project's mean, the more the fewer votes it rests on.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, digamma

Floats = NDArray[np.float64]

# With fewer prompts, or prompts that do not differ, the spread between prompts cannot be told:
# the prior then weighs as much as this many pieces of evidence (a uniform prior's two).
FALLBACK_WEIGHT = 2.0
LEAST_PROMPTS = 10
HEAVIEST_WEIGHT = 1_000.0  # where prompts differ no more than chance makes them


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Disagreement by prompt; row i of each array is prompt i. Fractions, not percent.

    observed: (n,) the share as counted, NaN without evidence; expected: (n,) the posterior mean,
    to rank by; low, high: (n,) its 95 % interval; mean: the project's share; weight: how many
    pieces of evidence the prior counts for.
    """

    observed: Floats
    expected: Floats
    low: Floats
    high: Floats
    mean: float
    weight: float


def disagreement_evidence(counts: ArrayLike) -> tuple[Floats, Floats]:
    """(differing, evidence) of each comparison, to be added up over a prompt's comparisons.

    counts: (n, choices) votes per choice. With N votes, n_k of them for choice k, the share of
    pairs of votes that differ is D = 1 − Σ n_k(n_k − 1) / (N(N − 1)), which is unbiased for
    1 − Σ p_k² (it is 1 − P_i of Fleiss, Psychological Bulletin 76, 1971). N votes hold N − 1
    pieces of evidence (each vote after the first differs from those before it or not), so
    evidence = N − 1 and differing = (N − 1) D. Fewer than two votes hold none.
    """
    votes = np.atleast_2d(np.asarray(counts, dtype=np.float64))
    if votes.ndim != 2 or not np.isfinite(votes).all() or (votes < 0).any():
        raise ValueError("counts must be a table of votes per choice, none negative")
    total = votes.sum(axis=1)
    alike = (votes * (votes - 1)).sum(axis=1)
    evidence = np.maximum(total - 1, 0.0)
    differing = evidence - np.divide(alike, total, out=np.zeros_like(total), where=total > 0)
    return np.where(evidence > 0, np.maximum(differing, 0.0), 0.0), evidence


def prompt_ambiguity(differing: ArrayLike, evidence: ArrayLike) -> Ambiguity:
    """Each prompt's disagreement with shrinkage, from sums over its comparisons.

    differing, evidence: (n,) sums of `disagreement_evidence`. Beta-binomial, empirical Bayes: the
    prompts' true shares follow a Beta with mean μ and weight κ, and `differing` counts successes
    among `evidence` trials. Posterior mean (κμ + differing) / (κ + evidence); the interval is the
    posterior's 2.5 % and 97.5 % points. μ is the pooled share; κ = (1 − γ)/γ, with γ by the
    moment estimator of Kleinman, JASA 68 (1973), weights = evidence. Ranking by posterior means:
    Laird & Louis, Journal of Educational Statistics 14 (1989).

    Departures: the trials of one comparison are not quite independent, so intervals are somewhat
    too long for prompts where people flip coins and about right for the others. κ is never under
    FALLBACK_WEIGHT, and is that with fewer than LEAST_PROMPTS prompts or no variation at all;
    where prompts vary no more than chance, κ is HEAVIEST_WEIGHT and the order means nothing.

    Assumes prompts whose votes were not chosen for their disagreement. Extra votes go to contested
    pairs first, which adds evidence there and biases the share up a little; the random stratum
    alone is free of it.
    """
    differs, trials = (np.asarray(x, dtype=np.float64) for x in (differing, evidence))
    if differs.shape != trials.shape or differs.ndim != 1:
        raise ValueError(f"one number of each per prompt: {differs.shape} and {trials.shape}")
    if (trials < 0).any() or (differs < 0).any() or (differs > trials + 1e-9).any():
        raise ValueError("differing must lie between 0 and evidence")
    mean, weight = _prior(differs, trials)
    yes, no = weight * mean + differs, weight * (1 - mean) + np.maximum(trials - differs, 0.0)
    observed = np.divide(differs, trials, out=np.full_like(trials, np.nan), where=trials > 0)
    return Ambiguity(
        observed=observed,
        expected=yes / (yes + no),
        low=betaincinv(yes, no, 0.025),
        high=betaincinv(yes, no, 0.975),
        mean=mean,
        weight=weight,
    )


def _prior(differs: Floats, trials: Floats) -> tuple[float, float]:
    """(μ, κ) of the prompts' Beta."""
    used = trials > 0
    n, total = trials[used], float(trials.sum())
    # half an observation each way keeps μ off 0 and 1, where a Beta has no density to speak of
    mean = (float(differs.sum()) + 0.5) / (total + 1)
    if len(n) < LEAST_PROMPTS:
        return mean, FALLBACK_WEIGHT
    pooled = float(differs.sum()) / total
    noise = pooled * (1 - pooled)
    if noise <= 0:
        return mean, FALLBACK_WEIGHT
    between = float((n * (differs[used] / n - pooled) ** 2).sum())
    chance = noise * (len(n) - 1)
    room = noise * (total - float((n**2).sum()) / total - (len(n) - 1))
    if room <= 0:  # one piece of evidence per prompt: nothing tells prompts and chance apart
        return mean, FALLBACK_WEIGHT
    alike = (between - chance) / room
    if alike <= 1 / (1 + HEAVIEST_WEIGHT):
        return mean, HEAVIEST_WEIGHT
    return mean, max(FALLBACK_WEIGHT, (1 - alike) / alike)


# How undecided a split of votes is: entropy in bits, drawn in where votes are few.


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
