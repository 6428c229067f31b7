"""What a report is computed from: decided pairs with their texts, and the votes behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from apps.snapshots.recipe import TRAIN
from measures.bootstrap import LEAST_UNITS
from measures.corpus import Corpus, token_count
from measures.style import marks_of
from measures.textmodel import folds_of, out_of_fold, tfidf


@dataclass(frozen=True, slots=True)
class ReportPair:
    """A row of a decided file. Texts are all turns joined by a blank line.

    won_first: the winner was stored first (is response A). chosen_key and rejected_key name the
    texts: equal where the same argument stands in several pairs. share: of votes for the winner.
    chosen_from, rejected_from: where the answers come from, "" where unknown.
    gold: whether the winner is the known right one; None without a known answer.
    """

    id: int
    split: str
    prompt: str
    chosen: str
    rejected: str
    chosen_key: str
    rejected_key: str
    won_first: bool
    share: float
    votes: tuple[int, ...]
    group: str = ""
    topic: str = ""
    language: str = ""
    source: str = ""
    batch: str = ""
    stratum: str = ""
    chosen_from: str = ""
    rejected_from: str = ""
    gold: bool | None = None


@dataclass(frozen=True, slots=True)
class ReportVote:
    """A vote that decided a pair.

    for_winner: True for, False against, None a tie or both bad. winner_left: whether the winner
    stood left, None where unknown. at: seconds since 1970. reasons: chips that were ticked;
    criteria: {criterion: "winner" | "tie" | "loser"}.
    """

    id: int
    person: int
    at: float
    for_winner: bool | None
    winner_left: bool | None = None
    reasons: tuple[str, ...] = ()
    criteria: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportMaterial:
    """pairs: every decided file's, in order; votes: by id; the project's words for reasons.

    n_train: training rows in all, where `pairs` holds a random part of them; else 0.
    criteria: {key: label} that voters are asked about; reasons: chips that are offered.
    """

    pairs: tuple[ReportPair, ...]
    votes: Mapping[int, ReportVote]
    criteria: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    n_train: int = 0


# The training rows as arrays that the checks share, each computed once.

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
