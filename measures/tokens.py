"""Which words stand on the chosen side far more often: the audit of spurious tokens.

Two questions about each word (or pair of words):

How much likelier is it, per word written, in chosen texts? The log-odds ratio with an informative
Dirichlet prior, δ = log((y_c + α) / (n_c + α₀ − y_c − α)) − the same for rejected, with α = α₀
times the word's share of all words and α₀ = 500, over its standard error
√(1/(y_c + α) + 1/(y_r + α)). Source: Monroe, Colaresi & Quinn, Political Analysis 16 (2008), eqs.
15–22. Words are ranked by it. It knows nothing of pairs, and takes repeated texts for new evidence,
so it is not a test here.

Could that be chance? Among pairs where one text holds the word and the other does not, how often is
the holder the chosen one: a paired test on document frequency. The p value is the larger of the
exact sign test and a t test whose variance counts every two pairs that share a text as correlated
(Aronow, Samii & Assenova, Political Analysis 23, 2015), with (texts that hold the word − 1) degrees
of freedom: where one strong text wins fifty pairs, its words have one text for them, not fifty
pairs. Benjamini & Hochberg, JRSS B 57 (1995), over all words tested: q < 0.05.

A longer text holds more of every word. So the paired test is also done after length: a model of
length alone, logit P(chosen) = β log(tokens of chosen / tokens of rejected), says what share of
holders would win for being long, and only what is beyond counts. A word that stands out only before
that merely marks longer answers.

Assumes pairs that share no text to be independent. Words in fewer than `LEAST_UNITS` texts are not
tested: there is no variance to speak of.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import bdtr, stdtr

from measures.bootstrap import LEAST_UNITS
from measures.corpus import Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_WORDS = 500.0
MOST_FALSE = 0.05  # Benjamini–Hochberg: of the words named, the share expected to be chance


@dataclass(frozen=True, slots=True)
class TokenAudit:
    """Figures of each feature; every array is (features,) in the order of `names`.

    log_odds, z: Monroe's δ and δ over its standard error, positive on the chosen side.
    in_chosen, in_rejected: share of pairs whose chosen, rejected text holds it.
    only_chosen, only_rejected: pairs where only that side holds it.
    p, q: of the paired test, NaN where untested; p_after, q_after: the same after length;
    beyond_length: mean of (holder chosen − what length predicts), in shares, NaN where no pair
    differs. beta: how strongly length alone predicts the choice. n: pairs.
    """

    names: tuple[str, ...]
    log_odds: Floats
    z: Floats
    in_chosen: Floats
    in_rejected: Floats
    only_chosen: Ints
    only_rejected: Ints
    p: Floats
    q: Floats
    p_after: Floats
    q_after: Floats
    beyond_length: Floats
    beta: float
    n: int

    @property
    def n_tested(self) -> int:
        return int(np.isfinite(self.p).sum())

    def ranked(self, *, most: int = 20) -> Ints:
        """Features with q < MOST_FALSE on the chosen side, highest z first."""
        named = (self.q < MOST_FALSE) & (self.z > 0) & (self.only_chosen > self.only_rejected)
        found = np.flatnonzero(named)
        return found[np.argsort(-self.z[found], kind="stable")][:most]

    def avoided(self, *, most: int = 10) -> Ints:
        """The same on the rejected side, lowest z first."""
        named = (self.q < MOST_FALSE) & (self.z < 0) & (self.only_chosen < self.only_rejected)
        found = np.flatnonzero(named)
        return found[np.argsort(self.z[found], kind="stable")][:most]

    def marks_length_only(self, feature: int) -> bool:
        """Stands out, but no further than the length of the texts that hold it explains."""
        return bool(self.q[feature] < MOST_FALSE and not self.q_after[feature] < MOST_FALSE)


def token_audit(
    counts: Counts, chosen: ArrayLike, rejected: ArrayLike, lengths: ArrayLike
) -> TokenAudit:
    """chosen, rejected: (n,) row numbers of the texts in `counts`; lengths: (texts,) tokens.

    A text that stands in several pairs must have one row number in all of them.
    """
    won, lost = np.asarray(chosen, dtype=np.int64), np.asarray(rejected, dtype=np.int64)
    if won.shape != lost.shape or won.ndim != 1:
        raise ValueError(f"chosen and rejected must be equally long: {won.shape}, {lost.shape}")
    presence = counts.presence
    difference = (presence[won] - presence[lost]).tocsr()
    difference.eliminate_zeros()
    log_odds, z = _log_odds(counts.table, won, lost)
    size = np.asarray(lengths, dtype=np.float64)
    ratio = np.log((size[won] + 1) / (size[lost] + 1)) if len(won) else np.zeros(0)
    beta = length_slope(ratio)
    surprise = 1 - np.tanh(beta * ratio / 2)  # twice the chance that length gave the loser

    ups = np.asarray((difference > 0).sum(axis=0)).ravel().astype(np.int64)
    downs = np.asarray((difference < 0).sum(axis=0)).ravel().astype(np.int64)
    units = SharedTexts(won, lost, presence)
    holders = units.holders(difference)
    tested = (holders >= LEAST_UNITS) & (ups + downs > 0)
    p = np.maximum(_sign_p(ups, downs), units.robust_p(difference, holders))
    after = sparse.diags_array(surprise, format="csr") @ difference if len(won) else difference
    # The t test alone: after length the outcomes are no coin flips, so there is no sign test.
    p_after = units.robust_p(after, holders)
    p[~tested], p_after[~tested] = np.nan, np.nan
    discordant = np.maximum(ups + downs, 1)
    beyond = np.asarray(after.sum(axis=0)).ravel() / 2 / discordant
    n = max(1, len(won))
    return TokenAudit(
        names=counts.names,
        log_odds=log_odds,
        z=z,
        in_chosen=np.asarray(presence[won].sum(axis=0)).ravel() / n,
        in_rejected=np.asarray(presence[lost].sum(axis=0)).ravel() / n,
        only_chosen=ups,
        only_rejected=downs,
        p=p,
        q=q_values(p),
        p_after=p_after,
        q_after=q_values(p_after),
        beyond_length=np.where(ups + downs > 0, beyond, np.nan),
        beta=beta,
        n=len(won),
    )


def q_values(p: ArrayLike) -> Floats:
    """Benjamini–Hochberg: least false discovery rate at which each is named. NaN stays NaN."""
    given = np.asarray(p, dtype=np.float64)
    q = np.full(len(given), np.nan)
    known = np.flatnonzero(np.isfinite(given))
    if not len(known):
        return q
    order = known[np.argsort(given[known], kind="stable")]
    raw = given[order] * len(order) / np.arange(1, len(order) + 1)
    q[order] = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    return q


def length_slope(ratio: ArrayLike, *, most_steps: int = 50) -> float:
    """β of logit P(chosen) = β · log length ratio, by Newton's method with a weak pull to 0.

    ratio: (n,) log(tokens of chosen / tokens of rejected). The pull (a Gaussian prior with
    standard deviation 10) keeps β finite where the longer always wins.
    """
    x = np.asarray(ratio, dtype=np.float64)
    beta = 0.0
    for _ in range(most_steps):
        odds = 1 / (1 + np.exp(np.clip(beta * x, -500, 500)))  # chance of the loser
        slope = float((x * odds).sum()) - beta / 100
        curve = float((x * x * odds * (1 - odds)).sum()) + 1 / 100
        step = slope / curve
        beta += float(np.clip(step, -5, 5))
        if abs(step) < 1e-9:
            break
    return beta


def _log_odds(table: sparse.csr_matrix, won: Ints, lost: Ints) -> tuple[Floats, Floats]:
    times = [np.bincount(rows, minlength=table.shape[0]) for rows in (won, lost)]
    up, down = (table.T @ n.astype(np.float64) for n in times)
    both = up + down
    total = both.sum()
    if not total:
        return np.zeros(len(both)), np.zeros(len(both))
    prior = np.where(both > 0, PRIOR_WORDS * both / total, 1.0)  # a word nobody used has odds 1
    rates = [
        np.log(y + prior) - np.log(np.maximum(y.sum() + PRIOR_WORDS - y - prior, 1e-9))
        for y in (up, down)
    ]
    delta = rates[0] - rates[1]
    error = np.sqrt(1 / np.maximum(up + prior, 1e-12) + 1 / np.maximum(down + prior, 1e-12))
    return delta, delta / error


def _sign_p(ups: Ints, downs: Ints) -> Floats:
    """Exact two-sided sign test: twice the binomial's smaller tail."""
    return np.minimum(1.0, 2 * bdtr(np.minimum(ups, downs), ups + downs, 0.5))


class SharedTexts:
    """Which pairs share a text, for the robust variance.

    won, lost: (n,) row numbers of texts; presence: (texts, features), 1 where a text holds one.
    """

    def __init__(self, won: Ints, lost: Ints, presence: sparse.csr_matrix) -> None:
        n, n_texts = len(won), presence.shape[0]
        rows = np.concatenate([np.arange(n), np.arange(n)])
        self._of_text = sparse.csr_matrix(
            (np.ones(2 * n), (np.concatenate([won, lost]), rows)), shape=(n_texts, n)
        )
        low, high = np.minimum(won, lost), np.maximum(won, lost)
        dyads, which = np.unique(low * max(1, n_texts) + high, return_inverse=True)
        self._of_dyad = sparse.csr_matrix(
            (np.ones(n), (which, np.arange(n))), shape=(len(dyads), n)
        )
        self._presence = presence

    def holders(self, difference: sparse.csr_matrix) -> Ints:
        """Texts that hold the feature and stand in a pair whose other text does not."""
        met = self._of_text @ abs(difference)
        held = met.multiply(self._presence)
        return np.asarray((held > 0).sum(axis=0)).ravel().astype(np.int64)

    def robust_p(self, signed: sparse.csr_matrix, holders: Ints) -> Floats:
        """Two-sided p of a zero mean of `signed` (pairs, features)."""
        t = self.robust_t(signed, holders)
        return 2 * stdtr(np.maximum(holders, 2) - 1, -np.abs(t))

    def robust_t(self, signed: sparse.csr_matrix, holders: Ints) -> Floats:
        """(features,) t of a zero mean of `signed` (pairs, features), holders − 1 degrees."""
        total = np.asarray(signed.sum(axis=0)).ravel()
        alone = _squares(signed)
        variance = _squares(self._of_text @ signed) - _squares(self._of_dyad @ signed)
        groups = np.maximum(holders, 2)
        # Never under that of independent pairs: negative correlation is not believed.
        spread = np.sqrt(np.maximum(variance, alone) * groups / (groups - 1))
        return np.divide(total, spread, out=np.zeros_like(total), where=spread > 0)


def _squares(table: sparse.csr_matrix) -> Floats:
    return np.asarray(table.multiply(table).sum(axis=0)).ravel().astype(np.float64)
