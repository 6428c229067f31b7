"""Which rows are left out together: folds over people, else over what rows share. No torch."""

import random
from collections import Counter
from collections.abc import Hashable, Sequence

from workers.data.snapshot import Preference

ANNOTATOR, CLUSTER, PROMPT, ROW = "annotator", "cluster", "prompt", "row"


def fold_keys(rows: Sequence[Preference], folds: int) -> tuple[str, list[Hashable]]:
    """(by what, one key a row): the annotator where every row is one person's, else the cluster,
    else the prompt, else the row; the first of which there are at least `folds`.

    Rows with one key share a fold, so a model is tested on people, debates or prompts that it has
    not seen, and never on a row it was trained on.
    """
    candidates: list[tuple[str, list[Hashable]]] = [
        (ANNOTATOR, [row.annotator for row in rows]),
        (CLUSTER, [row.cluster for row in rows]),
        (PROMPT, [repr(row.prompt) for row in rows]),
    ]
    for name, keys in candidates:
        if all(keys) and len(set(keys)) >= folds:
            return name, keys
    return ROW, list(range(len(rows)))


def assign_folds(keys: Sequence[Hashable], folds: int, *, seed: int) -> list[int]:
    """A fold (0 … folds − 1) for every row; equal keys get the same one.

    Keys are shuffled, then dealt largest first to the fold that has fewest rows so far, so folds
    are about equally large even where one annotator decided most.
    """
    sizes = Counter(keys)
    order = sorted(sizes, key=repr)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda key: -sizes[key])  # stable: ties stay shuffled
    filled = [0] * folds
    fold_of: dict[Hashable, int] = {}
    for key in order:
        fold = min(range(folds), key=filled.__getitem__)
        fold_of[key] = fold
        filled[fold] += sizes[key]
    return [fold_of[key] for key in keys]
