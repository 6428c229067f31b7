"""From votes to the rows of a preference snapshot. Pure: the same input gives the same rows.

The order matters and is fixed. (1) Filters take out comparisons, then votes. (2) The votes of
held-out annotators are set aside. (3) Held-out groups go to their own file, every pair that shares
an argument with them is taken out of the way, and the rest is split by group or by argument.
(4) Every comparison is decided again from the votes that are left. (5) Ties and "both are bad" go
where the tie policy says; pairs that a model selected are never measured on, and are dropped where
they fall outside training. (6) Training rows are drawn and weighted. (7) The votes that were set
aside come back as an evaluation file of their own, one row a vote, on comparisons that no training
row and no dev row shares a text with.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from apps.common.errors import DomainError
from apps.snapshots.assembling.deciding import (
    FEW_VOTES,
    LITTLE_AGREEMENT,
    LITTLE_POSTERIOR,
    NO_VOTES,
    VOTE_TIE,
    Decided,
    decide_pairs,
)
from apps.snapshots.assembling.gate import families_of
from apps.snapshots.assembling.material import (
    BY_GROUP,
    BY_LABEL,
    BY_ONE,
    Assembly,
    CurrentVote,
    Drop,
    Families,
    Material,
    Pair,
    SplitLine,
    as_families,
    place,
    units_of,
)
from apps.snapshots.assembling.tally import DECIDED_BAD, DECIDED_TIE, line_of, tally, warnings_about
from apps.snapshots.assembling.weighting import NOT_DRAWN, weigh, with_strengths
from apps.snapshots.recipe import (
    HELDOUT_ANNOTATORS,
    HELDOUT_GROUPS,
    JOIN,
    PUBLIC_TEST,
    SPLITS,
    TRAIN,
    SnapshotRecipe,
    half_of,
    moments,
)
from measures.splits import fold_of
from measures.voting import Choice

__all__ = [
    "DECIDED_BAD",
    "DECIDED_TIE",
    "FEW_VOTES",
    "LITTLE_AGREEMENT",
    "LITTLE_POSTERIOR",
    "NOT_DRAWN",
    "NO_VOTES",
    "VOTE_TIE",
    "assemble",
]

# Why a comparison is in no decided file. Short, stable words: pages and tests count by them.
DROPPED, REVIEW = "the comparison was dropped", "needs review"
SAME_TEXT = "both answers are the same"
OTHER_GROUP, OTHER_TOPIC = "left out by group", "left out by topic"
OTHER_BATCH, OTHER_STRATUM = "left out by batch", "left out by stratum"
OTHER_PAIR = "not among the pairs that were picked"
SHARES_HELDOUT = "shares an argument with a held-out group"
NEAR_HELDOUT = "nearly the same as a held-out group"
ONLY_TRAINED_ON = "chosen by a model, so never measured on"


def assemble(material: Material, recipe: SnapshotRecipe) -> Assembly:
    """Rows, drops with reasons, counts and warnings.

    `DomainError` (anonymous_votes) where annotators shall be held out and the votes do not say who
    cast them.
    """
    pairs = {pair.id: pair for pair in material.pairs}
    left_out = {p.id: reason for p in material.pairs if (reason := _filtered(p, recipe))}
    seen, held, refused = voters_left(material, recipe, set(left_out))
    require_named(seen, held, recipe)
    candidates = [pair for pair in material.pairs if pair.id not in left_out]

    placed = _Splits(candidates, recipe, material.texts)
    decided = decide_pairs(
        candidates,
        seen,
        placed.split,
        recipe,
        barred=material.barred,
        is_held=lambda key: fold_of(key, recipe.heldout_annotators, recipe.seed),
    )
    lines, drops = _lines(candidates, seen, placed, decided, recipe)
    drops += [Drop(p, reason, detail=pairs[p].review) for p, reason in left_out.items()]
    by_id = {vote.id: vote for vote in material.votes}
    lines = with_strengths(lines, by_id, TRAIN)
    weighed = weigh(lines.get(TRAIN, ()), pairs, by_id, recipe, decided.reliability)
    lines[TRAIN] = list(weighed.lines)
    drops += weighed.drops
    lines[HELDOUT_ANNOTATORS] = _held_lines(candidates, placed.split, held)

    files = {name: tuple(lines[name]) for name in SPLITS if lines.get(name)}
    drops.sort(key=lambda drop: drop.pair)
    counts = tally(
        files,
        drops,
        material,
        recipe,
        units=placed.units,
        votes_per_pair=decided.n_votes,
        refused=refused,
        held=held,
        reliability=decided.reliability,
    ) | {
        "rulings": decided.rulings,
        "weights": weighed.counts,
        "near_duplicates": placed.figures,
    }
    warnings = (
        *placed.notes,
        *warnings_about(files, pairs, recipe),
        *weighed.warnings,
        *_about_simulated(files, material),
    )
    return Assembly(files, tuple(drops), pairs, counts, warnings)


def _about_simulated(
    files: Mapping[str, Sequence[SplitLine]], material: Material
) -> tuple[str, ...]:
    used = {vote for lines in files.values() for line in lines for vote in line.votes}
    n = len(used & material.simulated)
    return (f"{n:,} of {len(used):,} votes are simulated: no person cast them.",) if n else ()


def _filtered(pair: Pair, recipe: SnapshotRecipe) -> str | None:
    """Why the filters leave this comparison out, or None. Held-out groups pass the group filter."""
    wanted = recipe.filters
    groups = {*wanted.groups, *recipe.heldout_groups} if wanted.groups else ()
    checks = (
        (DROPPED, pair.dropped),
        (REVIEW, bool(pair.review)),
        (SAME_TEXT, pair.a == pair.b),
        (OTHER_GROUP, bool(groups) and pair.group not in groups),
        (OTHER_GROUP, pair.group in wanted.without_groups),
        (OTHER_GROUP, bool(wanted.half) and half_of(pair.group) != wanted.half),
        (OTHER_TOPIC, bool(wanted.topics) and pair.topic not in wanted.topics),
        (OTHER_TOPIC, pair.topic in wanted.without_topics),
        (OTHER_BATCH, bool(wanted.batches) and pair.batch not in wanted.batches),
        (OTHER_STRATUM, bool(wanted.strata) and pair.stratum not in wanted.strata),
        (OTHER_PAIR, bool(wanted.comparisons) and pair.id not in wanted.comparisons),
    )
    return next((reason for reason, applies in checks if applies), None)


class _Splits:
    """split: of each candidate but those in `out`, which are too close to a held-out group."""

    def __init__(
        self, candidates: Sequence[Pair], recipe: SnapshotRecipe, texts: Mapping[str, str]
    ) -> None:
        alike = self._alike(candidates, recipe, texts)
        outside = [pair for pair in candidates if pair.group in recipe.heldout_groups]
        others = [pair for pair in candidates if pair.group not in recipe.heldout_groups]
        self.units = units_of(others, recipe.split_by, alike)
        self.out = _too_close(outside, others, alike, prompts=self.units.by == BY_GROUP)
        if self.out:
            inside = [pair for pair in others if pair.id not in self.out]
            self.units = units_of(inside, recipe.split_by, alike)
        made = place(self.units, recipe.shares, recipe.seed)
        self.split = {pair.id: HELDOUT_GROUPS for pair in outside} | dict(made.split)
        present = {pair.group for pair in outside}
        absent = tuple(
            f"Held-out group '{group}' has no comparison here."
            for group in recipe.heldout_groups
            if group not in present
        )
        self.notes = (*made.warnings, *absent)
        self.figures = {
            "texts": len(alike),
            "joined_groups": self.units.n_groups - len(set(self.units.of.values()))
            if self.units.by == BY_GROUP
            else 0,
        }

    @staticmethod
    def _alike(
        candidates: Sequence[Pair], recipe: SnapshotRecipe, texts: Mapping[str, str]
    ) -> Families:
        if recipe.near_duplicates != JOIN or not texts:
            return {}
        return families_of(candidates, texts, recipe.duplicate_similarity)


def _too_close(
    outside: Sequence[Pair], others: Sequence[Pair], alike: Families, *, prompts: bool
) -> dict[int, str]:
    """Which pairs share a text, or nearly so, with a held-out group's, and why they go."""
    exact = {text for pair in outside for text in (pair.a, pair.b)}
    near = {text for pair in outside for text in _texts(as_families(pair, alike), prompts)}
    found = {}
    for pair in others:
        if exact & {pair.a, pair.b}:
            found[pair.id] = SHARES_HELDOUT
        elif near & _texts(as_families(pair, alike), prompts):
            found[pair.id] = NEAR_HELDOUT
    return found


def _texts(pair: Pair, prompts: bool) -> set[str]:
    return {pair.a, pair.b, pair.prompt} - {""} if prompts else {pair.a, pair.b}


def _lines(
    candidates: Sequence[Pair],
    seen: Mapping[int, Sequence[CurrentVote]],
    placed: _Splits,
    decided: Decided,
    recipe: SnapshotRecipe,
) -> tuple[dict[str, list[SplitLine]], list[Drop]]:
    """The decided files, training included, and what is in none of them."""
    lines: dict[str, list[SplitLine]] = defaultdict(list)
    drops = []
    for pair in candidates:
        verdict = decided.verdicts[pair.id]
        votes = tuple(vote.id for vote in seen.get(pair.id, ())) if verdict.by != BY_LABEL else ()
        if close := placed.out.get(pair.id):
            drops.append(Drop(pair.id, close, votes))
            continue
        split = placed.split[pair.id]
        if pair.is_selected and split != TRAIN:
            drops.append(Drop(pair.id, ONLY_TRAINED_ON, votes))
            continue
        made = line_of(pair, split, verdict, votes, recipe.ties)
        if isinstance(made, Drop):
            drops.append(made)
        else:
            lines[split].append(made)
    return lines, drops


def _held_lines(
    candidates: Iterable[Pair], split: Mapping[int, str], held: Mapping[int, Sequence[CurrentVote]]
) -> list[SplitLine]:
    """One row per held-out vote for a side. Not on training or dev pairs: their texts are known."""
    return [
        SplitLine(pair.id, HELDOUT_ANNOTATORS, vote.choice, 1.0, (vote.id,), vote.person, by=BY_ONE)
        for pair in candidates
        if split.get(pair.id) in (HELDOUT_GROUPS, PUBLIC_TEST) and not pair.is_selected
        for vote in held.get(pair.id, ())
        if vote.choice in (Choice.A, Choice.B)
    ]


# Whose votes count: who is left out, who is held out, and whether the votes say who cast them.


By = Mapping[int, Sequence[CurrentVote]]

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
) -> tuple[dict[int, list[CurrentVote]], dict[int, list[CurrentVote]], Counter[str]]:
    """(votes that decide, held-out annotators' votes) by pair, and the rest counted by reason."""
    start, end = moments(recipe.filters)
    by_admin, excluded = set(recipe.filters.left_out), set(recipe.filters.without_annotators)
    seen: dict[int, list[CurrentVote]] = defaultdict(list)
    held: dict[int, list[CurrentVote]] = defaultdict(list)
    refused: Counter[str] = Counter()
    folds: dict[str, bool] = {}
    for vote in material.votes:
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
    """Refuses to hold out or to name annotators where the votes do not say whose they are (B8)."""
    if not (recipe.heldout_annotators or recipe.name_annotators):
        return
    what = anonymous(
        Counter(vote.person_key for votes in (*seen.values(), *held.values()) for vote in votes)
    )
    if what:
        asked = "held out" if recipe.heldout_annotators else "named"
        raise DomainError(
            f"Annotators cannot be {asked}: {what}, and the same person could be trained on and "
            "tested on. Hold out and name none, or leave these votes out.",
            code="anonymous_votes",
            field="heldout_annotators" if recipe.heldout_annotators else "name_annotators",
        )


def anonymous(votes: Mapping[str, int]) -> str:
    """Why the votes, counted by person key, do not say whose they are; "" where they do.

    An imported vote is anonymous when its annotator is called "unknown" or the like, when every
    imported vote has a name of its own (then the names are those of votes), or when one name stands
    on all of them. Held out by such names, the same person would be on both sides.
    """
    imported = {
        key.removeprefix("import:"): n for key, n in votes.items() if key.startswith("import:")
    }
    n = sum(imported.values())
    nobody = sum(k for name, k in imported.items() if _NOBODY.fullmatch(name))
    if nobody:
        return f"{nobody:,} imported votes name nobody as their annotator"
    if n >= _FEW_VOTES and len(imported) == n:
        return f"each of the {n:,} imported votes has its own annotator, so the ids name votes"
    if n >= _FEW_VOTES and len(imported) == 1:
        return f"all {n:,} imported votes carry one annotator's id"
    return ""
