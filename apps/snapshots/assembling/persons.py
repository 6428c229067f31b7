"""Whose votes count: who is left out, who is held out, and whether the votes say who cast them."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from apps.common.errors import DomainError
from apps.snapshots.assembling.material import Ballot, Material
from apps.snapshots.recipe import SnapshotRecipe, moments
from measures.splits import fold_of

By = Mapping[int, Sequence[Ballot]]

ON_LEFT_OUT = "on comparisons left out"
BY_LEFT_OUT = "by annotators left out by an admin"
BY_EXCLUDED = "by annotators left out"
BY_BARRED = "by annotators of another snapshot's training rows"
OUT_OF_TIME = "outside the time range"
# What exports write where nobody's name was kept.
_NOBODY = re.compile(
    r"(anon(ymous|ymised|ymized)?|unknown|unnamed|none|null|nan|nil|n/?a|undefined|missing|nobody"
    r"|annotator|user|worker|[-_?.]*)",
    re.IGNORECASE,
)
_FEW_VOTES = 20  # imported votes from which a person per vote is no longer chance


def voters_left(
    material: Material, recipe: SnapshotRecipe, left_out: set[int]
) -> tuple[dict[int, list[Ballot]], dict[int, list[Ballot]], Counter[str]]:
    """(votes that decide, held-out annotators' votes) by pair, and the rest counted by reason."""
    start, end = moments(recipe.filters)
    by_admin, excluded = set(recipe.filters.left_out), set(recipe.filters.without_annotators)
    seen: dict[int, list[Ballot]] = defaultdict(list)
    held: dict[int, list[Ballot]] = defaultdict(list)
    refused: Counter[str] = Counter()
    folds: dict[str, bool] = {}
    for vote in material.ballots:
        if vote.pair in left_out:
            refused[ON_LEFT_OUT] += 1
        elif vote.person in by_admin:
            refused[BY_LEFT_OUT] += 1
        elif vote.person in excluded:
            refused[BY_EXCLUDED] += 1
        elif vote.person in material.barred:
            refused[BY_BARRED] += 1
        elif (start and vote.at < start) or (end and vote.at >= end):
            refused[OUT_OF_TIME] += 1
        else:
            key = vote.person_key
            if key not in folds:
                folds[key] = fold_of(key, recipe.heldout_annotators, recipe.seed)
            (held if folds[key] else seen)[vote.pair].append(vote)
    return seen, held, refused


def require_named(seen: By, held: By, recipe: SnapshotRecipe) -> None:
    """Refuses to hold out annotators where the votes do not say whose they are (SPEC B8).

    An imported vote is anonymous when its annotator is called "unknown" or the like, when every
    imported vote has a name of its own (then the names are those of votes), or when one name stands
    on all of them. Held out by such names, the same person would be on both sides.
    """
    if not recipe.heldout_annotators:
        return
    imported: Counter[str] = Counter(
        vote.person_key.removeprefix("import:")
        for votes in (*seen.values(), *held.values())
        for vote in votes
        if vote.person_key.startswith("import:")
    )
    n = imported.total()
    nobody = sum(k for name, k in imported.items() if _NOBODY.fullmatch(name))
    if nobody:
        what = f"{nobody:,} imported votes name nobody as their annotator"
    elif n >= _FEW_VOTES and len(imported) == n:
        what = f"each of the {n:,} imported votes has its own annotator, so the ids name votes"
    elif n >= _FEW_VOTES and len(imported) == 1:
        what = f"all {n:,} imported votes carry one annotator's id"
    else:
        return
    raise DomainError(
        f"Annotators cannot be held out: {what}, and the same person could be trained on and "
        "tested on. Hold out none, or leave these votes out.",
        code="anonymous_votes",
        field="heldout_annotators",
    )
