"""How much each training row counts: strata evened out, old votes fading, nobody over the cap.

Only training rows are weighted, drawn and graded on a common scale; what is measured on counts as
it is.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from apps.snapshots.assembling.material import CurrentVote, Drop, Pair, SplitLine
from apps.snapshots.recipe import LENGTH, TOPIC, UNSAFE, SnapshotRecipe
from measures.splits import effective_sample_size
from measures.weights import (
    capped_weights,
    even_allocation,
    even_weights,
    recency_weights,
    scaled_grades,
)

NOT_DRAWN = "not drawn: enough of its kind"
LONGER, SIMILAR, SHORTER = "longer chosen", "similar length or a tie", "shorter chosen"
FLAGGED, UNFLAGGED = "flagged unsafe", "not flagged"
# Lengths within these bounds count as similar; outside, length alone could tell the answers apart.
_SIMILAR = (0.8, 1.25)
_DIGITS = 6
_SECONDS_A_DAY = 86_400
# From so many pairs of different length on, so large a share of one direction is an imbalance.
LEAST_FOR_IMBALANCE, MOST_ONE_WAY = 30, 0.85


@dataclass(frozen=True, slots=True)
class Weighed:
    """The training lines with weights, those not drawn, the figures, and what to say of them."""

    lines: tuple[SplitLine, ...]
    drops: tuple[Drop, ...]
    counts: Mapping[str, Any]
    warnings: tuple[str, ...]


def weigh(
    lines: Sequence[SplitLine],
    pairs: Mapping[int, Pair],
    by_id: Mapping[int, CurrentVote],
    recipe: SnapshotRecipe,
    reliability: Mapping[int, float],
) -> Weighed:
    """Draw and weigh the training lines."""
    strata = strata_of(lines, pairs, by_id)
    kept = _drawn(lines, pairs, strata, recipe)
    drops = [
        Drop(line.pair, NOT_DRAWN, line.votes) for k, line in enumerate(lines) if k not in kept
    ]
    lines = [line for k, line in enumerate(lines) if k in kept]
    strata = {name: [s for k, s in enumerate(of) if k in kept] for name, of in strata.items()}
    raw = even_weights([strata[name] for name in recipe.balance], len(lines))
    raw = raw * _fading(lines, by_id, recipe) * _trust(lines, by_id, recipe, reliability)
    made = capped_weights(raw, recipe.weight_cap)
    weights = np.round(made.weights, _DIGITS)
    weighed = tuple(
        replace(line, weight=float(weight)) for line, weight in zip(lines, weights, strict=True)
    )
    rare = sorted(
        {
            f"{name}: {strata[name][k]}"
            for name in recipe.balance
            for k in np.flatnonzero(made.at_cap)
        }
    )
    effective = effective_sample_size(weights).value
    counts = {
        "rows": len(lines),
        "effective_rows": None if effective is None else round(effective, 1),
        "largest": float(weights.max(initial=0.0)),
        "capped_rows": made.n_capped,
        "strata": {
            name: _weighted(of, weights)
            for name, of in strata.items()
            if name != TOPIC or TOPIC in recipe.balance
        },
    }
    said = [*_about_length(strata[LENGTH], recipe), *_about_cap(counts, rare, recipe)]
    return Weighed(weighed, tuple(drops), counts, tuple(said))


def strata_of(
    lines: Sequence[SplitLine], pairs: Mapping[int, Pair], by_id: Mapping[int, CurrentVote]
) -> dict[str, list[str]]:
    """The stratum of each line by each classification that rows can be balanced over."""
    return {
        LENGTH: [length_stratum(line, pairs[line.pair]) for line in lines],
        TOPIC: [pairs[line.pair].topic or "no topic" for line in lines],
        UNSAFE: [
            FLAGGED if any(by_id[v].unsafe for v in line.votes if v in by_id) else UNFLAGGED
            for line in lines
        ],
    }


def length_stratum(line: SplitLine, pair: Pair) -> str:
    """Whether the chosen answer is clearly longer or shorter: outside 0.8 to 1.25 times. A tie
    teaches nothing about length, as two answers of similar length teach nothing."""
    if line.winner not in ("a", "b"):
        return SIMILAR
    won, lost = pair.length_a, pair.length_b
    if line.winner == "b":
        won, lost = lost, won
    if won < _SIMILAR[0] * lost:
        return SHORTER
    return LONGER if won > _SIMILAR[1] * lost else SIMILAR


def with_strengths(
    lines: Mapping[str, Sequence[SplitLine]], by_id: Mapping[int, CurrentVote], split: str
) -> dict[str, list[SplitLine]]:
    """Each line with the mean strength towards its winner, graded votes on one scale per person.

    The scale of a person in `split` (training) is that of their votes there; elsewhere of all their
    votes: nothing measured on has a part in a training row. Lines of single votes have none.
    """
    graded = [
        by_id[v]
        for rows in lines.values()
        for line in rows
        if line.person is None
        for v in line.votes
        if v in by_id and by_id[v].strength is not None
    ]
    if not graded:
        return {name: list(rows) for name, rows in lines.items()}
    inside = {v for line in lines.get(split, ()) for v in line.votes}
    within, everywhere = _scaled([b for b in graded if b.id in inside]), _scaled(graded)
    return {
        name: [_with_strength(line, within if name == split else everywhere) for line in rows]
        for name, rows in lines.items()
    }


def _with_strength(line: SplitLine, scaled: Mapping[int, float]) -> SplitLine:
    known = [scaled[v] for v in line.votes if v in scaled]
    if line.person is not None or not known or line.winner not in ("a", "b"):
        return line
    mean = sum(known) / len(known) * (1 if line.winner == "a" else -1)
    return replace(line, strength=round(mean, _DIGITS))


def _scaled(votes: Sequence[CurrentVote]) -> dict[int, float]:
    side = {"a": 1.0, "b": -1.0}
    grades = [side.get(vote.choice, 0.0) * (vote.strength or 0) for vote in votes]
    values = scaled_grades(grades, [vote.person for vote in votes])
    return {vote.id: float(value) for vote, value in zip(votes, values, strict=True)}


# --- drawing -------------------------------------------------------------------------------------


def _drawn(
    lines: Sequence[SplitLine],
    pairs: Mapping[int, Pair],
    strata: Mapping[str, Sequence[str]],
    recipe: SnapshotRecipe,
) -> set[int]:
    """Places of the lines that stay: all, or `most_train_rows` drawn evenly over the strata.

    Within a stratum the hash of the texts decides, so a row that was drawn stays so while its
    stratum grows little.
    """
    most = recipe.most_train_rows
    if not most or len(lines) <= most:
        return set(range(len(lines)))
    cells: dict[tuple[str, ...], list[int]] = {}
    for k in range(len(lines)):
        cells.setdefault(tuple(strata[name][k] for name in recipe.balance), []).append(k)
    names = sorted(cells)
    share = even_allocation([len(cells[name]) for name in names], most)
    return {
        k
        for name, n in zip(names, share, strict=True)
        for k in sorted(cells[name], key=lambda k: _draw(pairs[lines[k].pair], recipe.seed))[:n]
    }


def _draw(pair: Pair, seed: str) -> tuple[str, int]:
    text = f"{seed}\0{pair.prompt}\0{pair.a}\0{pair.b}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), pair.id


# --- factors -------------------------------------------------------------------------------------


def _fading(
    lines: Sequence[SplitLine], by_id: Mapping[int, CurrentVote], recipe: SnapshotRecipe
) -> np.ndarray:
    """By the mean age of a row's votes, counted back from the newest training vote, not from now:
    the same recipe over the same votes gives the same weights on any day."""
    if recipe.half_life_days is None:
        return np.ones(len(lines))
    at = [[by_id[v].at.timestamp() for v in line.votes if v in by_id] for line in lines]
    newest = max((t for times in at for t in times), default=0.0)
    ages = [(newest - sum(times) / len(times)) / _SECONDS_A_DAY if times else 0.0 for times in at]
    return recency_weights(ages, recipe.half_life_days)


def _trust(
    lines: Sequence[SplitLine],
    by_id: Mapping[int, CurrentVote],
    recipe: SnapshotRecipe,
    reliability: Mapping[int, float],
) -> np.ndarray:
    """By the mean reliability of a row's voters; a row that was ruled on without votes counts 1."""
    if not recipe.reliability_weights:
        return np.ones(len(lines))
    known = [
        [reliability[by_id[v].person] for v in line.votes if by_id[v].person in reliability]
        for line in lines
    ]
    means = [sum(one) / len(one) for one in known if one]
    middle = sum(means) / len(means) if means else 1.0
    return np.array([sum(one) / len(one) / middle if one else 1.0 for one in known])


# --- words ---------------------------------------------------------------------------------------


def _weighted(of: Sequence[str], weights: np.ndarray) -> dict[str, dict[str, float]]:
    total: Counter[str] = Counter()
    for stratum, weight in zip(of, weights, strict=True):
        total[stratum] += float(weight)
    rows = Counter(of)
    return {name: {"rows": rows[name], "weight": round(total[name], 3)} for name in sorted(rows)}


def _about_length(strata: Sequence[str], recipe: SnapshotRecipe) -> list[str]:
    n = Counter(strata)
    different = n[LONGER] + n[SHORTER]
    if different < LEAST_FOR_IMBALANCE:
        return []
    share = n[LONGER] / different
    if max(share, 1 - share) < MOST_ONE_WAY:
        return []
    which = "longer" if share > 0.5 else "shorter"
    remedy = (
        "They are weighted evenly here, but a capped stratum stays light."
        if LENGTH in recipe.balance
        else "Balance by length, or have pairs of similar length labelled."
    )
    return [
        f"Imbalance of length: in {max(share, 1 - share):.0%} of the {different:,} training pairs "
        f"of clearly different length the {which} answer was chosen, so a model can score by "
        f"length alone. {remedy}"
    ]


def _about_cap(counts: Mapping[str, Any], rare: list[str], recipe: SnapshotRecipe) -> list[str]:
    said = []
    if rare and recipe.balance:
        said.append(
            f"{counts['capped_rows']:,} rows stand at the largest weight "
            f"({recipe.weight_cap:g} times the mean) and count less than evenly: {_some(rare)}."
        )
    effective = counts["effective_rows"]
    if effective is not None and effective < counts["rows"] / 2:
        said.append(
            f"The weights leave an effective {effective:,.0f} of {counts['rows']:,} training rows: "
            "less than half. A lower largest weight keeps more."
        )
    return said


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
