"""The training rows as arrays that the checks share, each computed once."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from apps.snapshots.recipe import TRAIN
from apps.snapshots.reports.material import ReportMaterial, ReportPair, ReportVote
from measures.bootstrap import LEAST_UNITS
from measures.corpus import Corpus, token_count
from measures.style import marks_of
from measures.textmodel import folds_of, out_of_fold, tfidf

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_GROUPS = 5  # fewer cannot be cross-validated over


class Frame:
    """Rows in the order of the training file; texts numbered by their first use.

    chosen, rejected: (n,) text numbers; a text that stands in several pairs has one number.
    """

    def __init__(self, material: ReportMaterial) -> None:
        rows = [pair for pair in material.pairs if pair.split == TRAIN]
        self.material = material
        self.rows: Sequence[ReportPair] = rows
        self.n = len(rows)
        self.n_frozen = max(self.n, material.n_train)
        numbers: dict[str, int] = {}
        texts: list[str] = []
        for pair in rows:
            for key, text in ((pair.chosen_key, pair.chosen), (pair.rejected_key, pair.rejected)):
                if key not in numbers:
                    numbers[key] = len(numbers)
                    texts.append(text)
        self.texts: Sequence[str] = texts
        self.chosen: Ints = np.array([numbers[p.chosen_key] for p in rows], dtype=np.int64)
        self.rejected: Ints = np.array([numbers[p.rejected_key] for p in rows], dtype=np.int64)

    @cached_property
    def tokens(self) -> Ints:
        """(texts,) length in tokens, of the text as it stands."""
        return np.array([token_count(text) for text in self.texts], dtype=np.int64)

    @cached_property
    def marks(self) -> list[frozenset[str]]:
        """Marks of style, by text."""
        return [marks_of(text) for text in self.texts]

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.texts)

    @cached_property
    def groups(self) -> list[str]:
        """What the text model must not know when it is tested: groups, or texts' components."""
        named = [pair.group or pair.prompt for pair in self.rows]
        return named if len(set(named)) >= LEAST_GROUPS else self._components()

    def _components(self) -> list[str]:
        ties = sparse.coo_matrix(
            (np.ones(self.n), (self.chosen, self.rejected)), shape=(len(self.texts),) * 2
        )
        _, label = sparse.csgraph.connected_components(ties, directed=False)
        parts = [str(label[text]) for text in self.chosen]
        return parts if len(set(parts)) >= LEAST_GROUPS else [str(p.id) for p in self.rows]

    @cached_property
    def origins(self) -> tuple[list[str], list[str]]:
        """Where chosen and rejected answers come from, "" where unknown or named too finely.

        An origin of fewer than LEAST_UNITS different answers tells answers apart, not origins.
        """
        known: dict[str, set[int]] = {}
        sides = [
            [(pair.chosen_from, text) for pair, text in zip(self.rows, self.chosen, strict=True)],
            [(p.rejected_from, text) for p, text in zip(self.rows, self.rejected, strict=True)],
        ]
        for name, text in (named for side in sides for named in side):
            known.setdefault(name, set()).add(int(text))
        wide = {name for name, texts in known.items() if name and len(texts) >= LEAST_UNITS}
        won, lost = ([name if name in wide else "" for name, _ in side] for side in sides)
        return won, lost

    @cached_property
    def at(self) -> Floats:
        """(n,) mean time of the deciding votes, seconds; NaN without votes."""
        votes = self.material.votes
        means = []
        for pair in self.rows:
            times = [votes[v].at for v in pair.votes if v in votes]
            means.append(sum(times) / len(times) if times else np.nan)
        return np.array(means)

    def votes_of(self, pair: ReportPair) -> list[ReportVote]:
        return [self.material.votes[v] for v in pair.votes if v in self.material.votes]

    # --- for the text model ---------------------------------------------------------------------

    @cached_property
    def differences(self) -> sparse.csr_matrix:
        """(n, features) TF-IDF of chosen − rejected."""
        x = tfidf(self.corpus.counts(least_texts=3), self.corpus.lengths)
        return (x[self.chosen] - x[self.rejected]).tocsr()

    @cached_property
    def fold(self) -> Ints:
        """(n,) fold of each row."""
        return folds_of(self.groups)

    @cached_property
    def margin(self) -> Floats:
        """(n,) out-of-fold log-odds that the label is what the words suggest."""
        return out_of_fold(self.differences, self.fold)
