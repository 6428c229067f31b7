"""Near-duplicates across splits: what is nearly a training text is no test."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import product

from measures.duplicates import near_duplicates

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
