"""The leak gate: proves of the written files that nothing measured on was trained on.

It trusts nothing that assembled them. Texts are read back from the files and compared in normal
form, for being the same and for being nearly so; annotators are looked up again by the ids of the
votes; who is held out is computed again from the recipe. A snapshot with one leak is not frozen.
"""

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from threading import Lock
from typing import Any

from apps.common.errors import Conflict
from apps.snapshots.assembling.material import BY_RULING, Families, Pair, SplitLine
from apps.snapshots.assembling.rows import Row, argument_text, desirable, prompt_text, text_key
from apps.snapshots.recipe import (
    HELDOUT_ANNOTATORS,
    HELDOUT_GROUPS,
    KTO,
    PUBLIC_TEST,
    SnapshotRecipe,
)
from apps.snapshots.storage import read_rows
from measures.duplicates import near_duplicates, near_families
from measures.messages import images_in, plain
from measures.splits import fold_of

# Near-duplicates across splits: what is nearly a training text is no test.

_SHOWN = 60  # characters of an example


def near_leaks(
    texts: Mapping[str, Mapping[str, str]],
    what: str,
    similarity: float,
    may_share: Collection[Collection[str]],
) -> Iterator[str]:
    """A sentence for every two files that hold texts at least `similarity` alike, with the closest.

    texts: by file, what each text is recognised by → how to show it. Equal ones are another check's
    business. may_share: sets of two files that may.
    """
    files_of: dict[str, set[str]] = defaultdict(set)
    shown: dict[str, str] = {}
    for name, of in texts.items():
        for text, said in of.items():
            files_of[text].add(name)
            shown[text] = said
    ordered = sorted(files_of)
    found = near_duplicates(ordered, threshold=similarity)
    # Texts with the same words (a comma apart) stand in for one another in the list of pairs, so
    # their files are put together first.
    owner = list(range(len(ordered)))
    for first, second, value in zip(found.first, found.second, found.similarity, strict=True):
        if value == 1:
            owner[second] = owner[first]
    together: dict[int, set[str]] = defaultdict(set)
    for row, text in enumerate(ordered):
        together[owner[row]] |= files_of[text]
    closest: dict[tuple[str, str], tuple[float, int, int]] = {}
    n: dict[tuple[str, str], int] = defaultdict(int)
    for first, second, value in zip(found.first, found.second, found.similarity, strict=True):
        one, other = together[owner[first]], together[owner[second]]
        sides = (
            (files_of[ordered[first]], files_of[ordered[second]]) if value == 1 else (one, other)
        )
        for a, b in product(*sides):
            if a == b or {a, b} in may_share:
                continue
            key = (min(a, b), max(a, b))
            n[key] += 1
            closest[key] = max(closest.get(key, (0.0, 0, 0)), (float(value), first, second))
    for (a, b), (value, first, second) in sorted(closest.items()):
        one, other = (shown[ordered[row]][:_SHOWN] for row in (first, second))
        yield (
            f"{n[a, b]} near-duplicate {what}s stand in both {a} and {b} (at least "
            f"{similarity:.0%} alike), such as '{one}' and '{other}' ({value:.0%}); join "
            "near-duplicates, or drop one of them"
        )


# The held-out annotators' votes are on the very pairs of these two files, which train nothing.
_MAY_SHARE = (
    {HELDOUT_ANNOTATORS, HELDOUT_GROUPS},
    {HELDOUT_ANNOTATORS, PUBLIC_TEST},
)


@dataclass(frozen=True, slots=True)
class VoteFacts:
    """What the database says of a vote."""

    pair: int
    person: int
    person_key: str


@dataclass(frozen=True, slots=True)
class RulingFacts:
    """What the database says was ruled on a comparison, and by whom where that is known."""

    choice: str
    person: int | None
    person_key: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked at, and every leak found, in words."""

    votes: int
    annotators: int
    texts: int
    splits: int
    rulings: int
    leaks: tuple[str, ...]


class LeakFound(Conflict):
    """The files would let a model be measured on what it was trained on."""

    code = "leak"


def prove(
    files: Mapping[str, Path],
    lines: Mapping[str, Sequence[SplitLine]],
    votes: Mapping[int, VoteFacts],
    recipe: SnapshotRecipe,
    *,
    split_by: str,
    rulings: Mapping[int, RulingFacts] | None = None,
    barred: frozenset[int] = frozenset(),
    looks: Mapping[str, int] | None = None,
) -> Proof:
    """Every check over the files and the votes behind their lines.

    files: where each split was written. votes: facts by vote id, rulings: by comparison, both read
    from the database; barred: people who voted in the training rows of a snapshot that this one
    must be disjoint from. looks: 64 bits of each image, by its hash.
    """
    rows = {name: list(read_rows(path)) for name, path in files.items()}
    texts = {name: _texts(of) for name, of in rows.items()}
    groups = {name: {row["group"]: row["group"] for row in of} for name, of in rows.items()}
    leaks = [
        *_vote_leaks(lines, votes, recipe, barred),
        *_ruling_leaks(lines, rulings or {}, recipe, barred),
        *_shared({name: _named(of) for name, of in texts.items()}, "argument"),
        *_group_leaks(groups, recipe, split_by),
        *_row_leaks(rows, lines, recipe),
        *near_leaks(texts, "argument", recipe.duplicate_similarity, _MAY_SHARE),
    ]
    leaks += _image_leaks(rows, looks or {})
    if split_by == "group":
        prompts = {
            name: {text: text for row in of if (text := prompt_text(row["prompt"]))}
            for name, of in rows.items()
        }
        leaks += near_leaks(prompts, "prompt", recipe.duplicate_similarity, _MAY_SHARE)
    known = [votes[v] for of in lines.values() for x in of for v in x.votes if v in votes]
    return Proof(
        votes=len(known),
        annotators=len({vote.person for vote in known}),
        texts=len(set().union(*texts.values())) if texts else 0,
        splits=len(files),
        rulings=sum(line.by == BY_RULING for of in lines.values() for line in of),
        leaks=tuple(leaks),
    )


def require_clean(proof: Proof) -> None:
    if proof.leaks:
        more = f" (and {len(proof.leaks) - 1} more)" if len(proof.leaks) > 1 else ""
        raise LeakFound(f"Not frozen: {proof.leaks[0]}{more}.", details=list(proof.leaks[:20]))


def _vote_leaks(
    lines: Mapping[str, Sequence[SplitLine]],
    votes: Mapping[int, VoteFacts],
    recipe: SnapshotRecipe,
    barred: frozenset[int],
) -> Iterable[str]:
    left_out = _left_out(recipe, barred)
    for name, rows in lines.items():
        for line in rows:
            for vote in line.votes:
                facts = votes.get(vote)
                if facts is None or facts.pair != line.pair:
                    yield f"vote {vote} in {name} is no vote on comparison {line.pair}"
                    continue
                held = fold_of(facts.person_key, recipe.heldout_annotators, recipe.seed)
                if held != (name == HELDOUT_ANNOTATORS):
                    kind = "a held-out" if held else "a training"
                    yield f"vote {vote} of {kind} annotator stands in {name}"
                if facts.person in left_out:
                    yield f"vote {vote} of an annotator who is left out stands in {name}"


def _shared(keys: Mapping[str, Mapping[str, str]], what: str) -> Iterable[str]:
    for one, other in combinations(keys, 2):
        both = keys[one].keys() & keys[other].keys()
        if both and {one, other} not in _MAY_SHARE:
            example = keys[one][min(both)][:60]
            yield f"{len(both)} {what}s stand in both {one} and {other}, such as '{example}'"


def _group_leaks(
    groups: Mapping[str, Mapping[str, str]], recipe: SnapshotRecipe, split_by: str
) -> Iterable[str]:
    held = set(recipe.heldout_groups)
    for name, present in groups.items():
        if name not in (HELDOUT_GROUPS, HELDOUT_ANNOTATORS) and present.keys() & held:
            yield f"held-out group '{min(present.keys() & held)}' stands in {name}"
    if split_by == "group":
        yield from _shared(groups, "group")


def _ruling_leaks(
    lines: Mapping[str, Sequence[SplitLine]],
    rulings: Mapping[int, RulingFacts],
    recipe: SnapshotRecipe,
    barred: frozenset[int],
) -> Iterable[str]:
    left_out = _left_out(recipe, barred)
    for name, rows in lines.items():
        for line in rows:
            if line.by != BY_RULING:
                continue
            facts = rulings.get(line.pair)
            if facts is None or facts.choice != line.winner:
                yield f"nobody ruled {line.winner} on comparison {line.pair} in {name}"
                continue
            if facts.person_key and fold_of(
                facts.person_key, recipe.heldout_annotators, recipe.seed
            ):
                yield f"the ruling on comparison {line.pair} in {name} is a held-out annotator's"
            if facts.person in left_out:
                yield f"a ruling of somebody who is left out stands in {name}"


ALIKE = 6  # bits of 64; copies that were made smaller or encoded again differ in fewer


def _image_leaks(rows: Mapping[str, Sequence[Row]], looks: Mapping[str, int]) -> Iterator[str]:
    """Images that look alike in two files, by the bits of their brightness."""
    held = {
        name: {image for row in of for text in _answers_of(row) for image in images_in(text)}
        for name, of in rows.items()
    }
    for (one, first), (other, second) in combinations(sorted(held.items()), 2):
        if {one, other} in _MAY_SHARE:
            continue
        found = next(
            (
                (a, b)
                for a in sorted(first)
                for b in sorted(second)
                if a == b or (a in looks and b in looks and _bits(looks[a], looks[b]) <= ALIKE)
            ),
            None,
        )
        if found is not None:
            yield (
                f"images that look alike stand in both {one} and {other}, such as {found[0][:12]} "
                f"and {found[1][:12]}; give their rows one group, or drop one of them"
            )


def _answers_of(row: Row) -> Iterator[Sequence[Mapping[str, Any]]]:
    return (row[name] for name in ("prompt", "chosen", "rejected", "completion") if name in row)


def _bits(one: int, other: int) -> int:
    return ((one ^ other) & (2**64 - 1)).bit_count()


def _left_out(recipe: SnapshotRecipe, barred: frozenset[int]) -> frozenset[int]:
    return barred | set(recipe.filters.left_out) | set(recipe.filters.without_annotators)


def _row_leaks(
    files: Mapping[str, Sequence[Row]],
    lines: Mapping[str, Sequence[SplitLine]],
    recipe: SnapshotRecipe,
) -> Iterable[str]:
    """The votes were checked by the lines; so the files must be these lines and no others."""
    per_line = 2 if recipe.ties == KTO else 1
    for name in {*files, *lines}:
        written = [row["comparison"] for row in files.get(name, ())]
        of = lines.get(name, ())
        if written != [str(line.pair) for line in of for _ in range(per_line)]:
            yield f"the rows of {name} are not those whose votes were checked"
        elif recipe.ties == KTO and [row["label"] for row in files[name]] != [
            desirable(line.winner, side) for line in of for side in ("a", "b")
        ]:
            yield f"the labels of {name} are not those that were decided"


def _texts(rows: Iterable[Row]) -> dict[str, str]:
    """What each answer is recognised by → itself, of every answer of every row."""
    return {
        argument_text(row["prompt"], row[side]): plain(row[side])
        for row in rows
        for side in ("chosen", "rejected", "completion")
        if side in row
    }


def _named(texts: Mapping[str, str]) -> dict[str, str]:
    return {text_key(text): said for text, said in texts.items()}


# Which texts are nearly the same, so that no split tests on what another one trains on.


class _Kept:
    """The newest results, of `most` texts together at most: somebody who tries recipes on the page
    looks at the same texts again and again, each time for every setting that loses pairs.

    A result with more texts than that is found again each time.
    """

    def __init__(self, most: int) -> None:
        self._most, self._n, self._lock = most, 0, Lock()
        self._found: OrderedDict[tuple[str, float], Families] = OrderedDict()

    def get(self, name: tuple[str, float]) -> Families | None:
        return self._found.get(name)

    def put(self, name: tuple[str, float], families: Families) -> None:
        if self._size(families) > self._most:
            return
        with self._lock:
            if name in self._found:
                return
            self._found[name] = families
            self._n += self._size(families)
            while self._n > self._most:
                self._n -= self._size(self._found.popitem(last=False)[1])

    @staticmethod
    def _size(families: Families) -> int:
        return len(families) + 100  # an empty one takes room too


_kept = _Kept(100_000)  # about 30 MB in each process


def families_of(pairs: Sequence[Pair], texts: Mapping[str, str], similarity: float) -> Families:
    """Families among the prompts and among the answers of `pairs`.

    texts: by key; a key without one is alike to nothing.
    """
    prompts = {pair.prompt for pair in pairs}
    answers = {key for pair in pairs for key in (pair.a, pair.b)}
    return {**_families(prompts, texts, similarity), **_families(answers, texts, similarity)}


def _families(keys: Iterable[str], texts: Mapping[str, str], similarity: float) -> Families:
    ordered = sorted(key for key in keys if key in texts)
    digest = hashlib.sha256()
    for key in ordered:
        digest.update(f"{key}\0{texts[key]}\0".encode("utf-8", "surrogatepass"))
    name = (digest.hexdigest(), similarity)
    found = _kept.get(name)
    if found is None:
        family = near_families([texts[key] for key in ordered], threshold=similarity)
        found = {k: ordered[n] for k, n in zip(ordered, family, strict=True) if ordered[n] != k}
        _kept.put(name, found)
    return found
