"""Snapshot rows with a model's scores beside them, and which file answers which question.

The files of a snapshot differ in what they hold out, and every question about a model needs its
own kind of unseen: unseen topics for "is it right", unseen people for "does it know only those it
met", and rows that the figure was not fitted on for calibration.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measures.messages import Messages
from measures.trust.significance import Pairs
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN, Preference, evaluation_splits, read_preferences
from workers.rewards.source import RewardSource

# Scores of many texts, asked for in chunks so that a run can tell how far it is.

Floats = NDArray[np.float64]

CHUNK = 512  # texts between two looks at the clock


@dataclass(frozen=True, slots=True)
class Scored:
    """values: (n,) raw scores; members: {name: (n,)} of an ensemble, empty for a single model;
    disagreement: (n,) where there are members; truncated: texts whose end was not read."""

    values: Floats
    members: dict[str, Floats] = field(default_factory=dict)
    disagreement: Floats | None = None
    truncated: int = 0

    def part(self, start: int, end: int) -> "Scored":
        cut = slice(start, end)
        return Scored(
            self.values[cut],
            {name: of[cut] for name, of in self.members.items()},
            None if self.disagreement is None else self.disagreement[cut],
        )


class Scorer:
    """A source of rewards for arrays. `scored` hears how many texts were read since it last did.

    Raises `RecipeError` (non_finite_scores) for a model that answers with NaN or infinities: no
    line could be trusted then.
    """

    def __init__(self, source: RewardSource, *, scored: Callable[[int], None] = lambda n: None):
        self._source = source
        self._scored = scored

    def __call__(self, prompts: Sequence[Messages], texts: Sequence[str]) -> Scored:
        if len(prompts) != len(texts):
            raise ValueError(f"one prompt per text: {len(prompts)} for {len(texts)}")
        # Texts of one length together, so that a chunk is not padded to its longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        values = np.zeros(len(texts))
        members: dict[str, Floats] = {}
        disagreement: Floats | None = None
        truncated = 0
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            got = self._source.score([prompts[i] for i in rows], [texts[i] for i in rows])
            values[rows] = got.values
            truncated += got.truncated
            apart = getattr(got, "disagreement", None)
            if apart is not None:
                disagreement = np.zeros(len(texts)) if disagreement is None else disagreement
                disagreement[rows] = apart
                for name, part in got.parts.items():
                    members.setdefault(name, np.zeros(len(texts)))[rows] = part
            self._scored(len(rows))
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise RecipeError(
                "non_finite_scores",
                Fault.DATA,
                f"the reward model answered {bad} of {len(values)} texts with NaN or infinity",
            )
        return Scored(values, members, disagreement, truncated)


SMOKE = "smoke"  # a handful of rows for trying a pipeline; measures nothing
UNSEEN_PEOPLE = "heldout_annotators"
# From the strictest: whole topics unseen, then rows that share no text with training, then those
# that training was watched on.
STRICTEST_FIRST = ("heldout_groups", "public_test", "dev")
SAME_PEOPLE = ("dev", "public_test")  # drawn at random, so by the people behind training
_ORDER = {"a": 1.0, "b": -1.0, "": 0.0}  # whether the chosen answer was stored first
LEAST_ROWS = 50  # of a file, before it is preferred to a less strict one that has more


def splits_of(folder: Path) -> dict[str, list[Preference]]:
    """{file: its rows}, training first, without empty files and the smoke test."""
    names = [TRAIN, *(name for name in evaluation_splits(folder) if name != SMOKE)]
    rows = {name: read_preferences(folder, name) for name in names}
    return {name: of for name, of in rows.items() if of}


def held_out_split(sizes: Mapping[str, int]) -> str | None:
    """The strictest evaluation file with `LEAST_ROWS` rows, else the largest one there is.

    Files that Concord does not know come after those it does. The votes of held-out annotators
    decide only where nothing else does: each is a single vote, so a perfect model errs on them.
    """
    known = [name for name in STRICTEST_FIRST if sizes.get(name)]
    others = sorted(set(sizes) - {TRAIN, UNSEEN_PEOPLE, SMOKE, *STRICTEST_FIRST})
    order = [*known, *(name for name in others if sizes[name])]
    enough = next((name for name in order if sizes[name] >= LEAST_ROWS), None)
    if enough is None and order:
        return max(order, key=lambda name: sizes[name])
    return enough or (UNSEEN_PEOPLE if sizes.get(UNSEEN_PEOPLE) else None)


def same_people_split(sizes: Mapping[str, int]) -> str | None:
    """The larger file whose rows people behind the training rows decided."""
    found = [name for name in SAME_PEOPLE if sizes.get(name)]
    return max(found, key=lambda name: sizes[name]) if found else None


def same_comparisons(
    rows: Mapping[str, Sequence[Preference]], scored: Mapping[str, Scored], *, replicates: int
) -> tuple[Pairs, Pairs] | None:
    """(what the people behind training say, what people it never met say) about the same pairs.

    A vote of one person is harder to predict than what several agree on, and other topics are
    harder than known ones: only on the same pairs is a gap between people one of people. Rows pair
    up by their comparison; the first side stands once for each vote of the second. Its confidence
    is how likely another of its people votes like that: Jeffreys' (s·n + ½)/(n + 1) of the share s
    of n votes, since a share of few votes that was high enough to decide is too high.

    None with fewer than `LEAST_ROWS` such rows.
    """
    decided = {
        row.comparison: (name, i)
        for name in STRICTEST_FIRST
        for i, row in enumerate(rows.get(name, ()))
        if row.comparison and not row.annotator
    }
    votes = rows.get(UNSEEN_PEOPLE, ())
    found = [
        (i, *decided[row.comparison]) for i, row in enumerate(votes) if row.comparison in decided
    ]
    if len(found) < LEAST_ROWS:
        return None
    theirs = [votes[i] for i, _, _ in found]
    unseen = pairs_of(
        UNSEEN_PEOPLE,
        theirs,
        _both(scored[UNSEEN_PEOPLE], [i for i, _, _ in found], len(votes)),
        replicates=replicates,
    )
    ours = [_another_vote(rows[name][j]) for _, name, j in found]
    parts = [_both(scored[name], [j], len(rows[name])) for _, name, j in found]
    values = np.concatenate([[part.values[0] for part in parts], [p.values[1] for p in parts]])
    seen = pairs_of(found[0][1], ours, Scored(values), replicates=replicates)
    return seen, unseen


def _another_vote(row: Preference) -> Preference:
    if row.votes is None or row.confidence == 0.5:
        return row
    share = (row.confidence * row.votes + 0.5) / (row.votes + 1)
    return replace(row, confidence=share)


def _both(scored: Scored, rows: Sequence[int], n: int) -> Scored:
    """Of `score_both`'s answer for n rows: chosen and rejected of some of them."""
    return Scored(scored.values[[*rows, *(n + i for i in rows)]])


def fitting_split(sizes: Mapping[str, int], held_out: str | None) -> str | None:
    """A file for fitting a temperature on: never the one that it is judged on."""
    found = [name for name in ("dev", "public_test") if sizes.get(name) and name != held_out]
    return found[0] if found else None


def draw(rows: Sequence[Preference], most: int, seed: int) -> list[Preference]:
    """At most `most` of the rows, by seed, in their order."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i] for i in sorted(random.Random(seed).sample(range(len(rows)), most))]


def score_both(rows: Sequence[Preference], scorer: Scorer) -> Scored:
    """Of n rows 2n answers: all that were chosen, then all that were rejected."""
    prompts = [row.prompt for row in rows]
    return scorer(prompts * 2, [row.chosen for row in rows] + [row.rejected for row in rows])


def pairs_of(split: str, rows: Sequence[Preference], scored: Scored, *, replicates: int) -> Pairs:
    """The n rows of one file with the scores of `score_both`."""
    n = len(rows)
    chosen, rejected = scored.part(0, n), scored.part(n, 2 * n)
    units = [row.units for row in rows if row.units is not None]
    return Pairs(
        split=split,
        chosen_scores=chosen.values,
        rejected_scores=rejected.values,
        chosen_texts=[row.chosen for row in rows],
        rejected_texts=[row.rejected for row in rows],
        prompts=[row.prompt[-1]["content"] for row in rows],
        confidence=np.array([row.confidence for row in rows], dtype=float),
        clusters=[row.cluster for row in rows],
        units=units if rows and len(units) == n else None,
        groups=[row.group for row in rows],
        categories=[row.category for row in rows],
        annotators=[row.annotator for row in rows],
        sources=[row.sources for row in rows],
        times=np.array(
            [np.nan if row.decided_at is None else row.decided_at for row in rows], dtype=float
        ),
        order=np.array([_ORDER[row.chosen_side] for row in rows], dtype=float),
        members={name: (chosen.members[name], rejected.members[name]) for name in scored.members},
        replicates=replicates,
    )
