"""A cheap reward model of words: logistic Bradley–Terry on TF-IDF differences, fitted in a blink.

P(chosen beats rejected) = σ(w · (x_chosen − x_rejected)), no intercept, so swapping the two sides
swaps the answer. x: TF-IDF, (1 + log count) · log((1 + texts)/(1 + texts that hold it)) + 1, each
text scaled to length 1 (Salton & Buckley, Information Processing & Management 24, 1988), and the
logarithm of the text's length in tokens, which scaling takes out. Ridge: ½ρ|w|² beside the summed
log loss, w found by L-BFGS.

It stands for "what a simple reader of these words would predict": to draw a learning curve, to find
labels that the words contradict, and to see preferences change over time. It is no reward model to
train against. Assumes that style shows in words; where it cannot tell (accuracy near ½), nothing
that rests on it means anything, and what uses it says so.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import minimize

from measures.corpus import Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RIDGE = 3.0  # least log loss on unseen debates of the argument pairs, among 1, 3, 10 and 30
LENGTH_SCALE = 0.5  # of log length, so that the ridge weighs it as it does a word
FOLDS = 5


def tfidf(
    counts: Counts, lengths: ArrayLike, *, known: ArrayLike | None = None
) -> sparse.csr_matrix:
    """(texts, features + 1): the last column is log length. lengths: (texts,) tokens.

    known: (texts,) true for the texts whose words say how rare a word is; all, if not given.
    """
    table = counts.table.copy().tocsr()
    seen = table if known is None else table[np.flatnonzero(np.asarray(known, dtype=bool))]
    n_texts = seen.shape[0]
    holders = np.bincount(seen.indices, minlength=table.shape[1])
    rarity = np.log((1 + n_texts) / (1 + holders)) + 1
    table.data = (1 + np.log(table.data)) * rarity[table.indices]
    norm = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    scaled = sparse.diags_array(1 / np.where(norm > 0, norm, 1), format="csr") @ table
    size = LENGTH_SCALE * np.log1p(np.asarray(lengths, dtype=np.float64))
    return sparse.hstack([scaled, sparse.csr_matrix(size[:, None])], format="csr")


def fit(
    differences: sparse.csr_matrix, *, ridge: float = RIDGE, weights: ArrayLike | None = None
) -> Floats:
    """Weights from (n, features) differences x_chosen − x_rejected; weights: (n,) of the rows."""
    x = sparse.csr_matrix(differences)
    if not x.shape[0]:
        return np.zeros(x.shape[1])
    transposed = x.T.tocsr()
    counted = np.ones(x.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)

    def loss(w: Floats) -> tuple[float, Floats]:
        margin = x @ w
        value = float(counted @ np.logaddexp(0, -margin)) + 0.5 * ridge * float(w @ w)
        wrong = 1 / (1 + np.exp(np.clip(margin, -500, 500)))
        return value, ridge * w - transposed @ (counted * wrong)

    start = np.zeros(x.shape[1])
    return minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60, "ftol": 1e-6}
    ).x


def folds_of(units: Sequence[object], *, folds: int = FOLDS, seed: int = 0) -> Ints:
    """(n,) fold of each row, whole units in one fold, the largest units placed first.

    Fewer units than folds leave folds empty. Units of one size are placed in random order.
    """
    _, unit, size = np.unique(np.asarray(units, dtype=str), return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(size))
    order = order[np.argsort(-size[order], kind="stable")]
    filled = np.zeros(folds, dtype=np.int64)
    fold = np.zeros(len(size), dtype=np.int64)
    for name in order:
        fold[name] = int(filled.argmin())
        filled[fold[name]] += size[name]
    return fold[unit] if len(size) else np.zeros(0, dtype=np.int64)


def out_of_fold(differences: sparse.csr_matrix, fold: ArrayLike, *, ridge: float = RIDGE) -> Floats:
    """(n,) margin log P/(1 − P) of each row's label, by a model that saw none of its fold."""
    x, of = sparse.csr_matrix(differences), np.asarray(fold)
    margin = np.zeros(x.shape[0])
    for number in np.unique(of):
        inside = of == number
        margin[inside] = x[inside] @ fit(x[~inside], ridge=ridge)
    return margin
