"""What the pages print: counts in, words and table rows out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import in_order

SPLIT_WORDS = {
    "train": "Training",
    "dev": "Dev: steers training",
    "public_test": "Public test",
    "heldout_groups": "Held-out groups",
    "heldout_annotators": "Held-out annotators, one row a vote",
}


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    spread: str
    basis: str


@dataclass(frozen=True, slots=True)
class SplitRow:
    name: str
    words: str
    rows: int
    groups: int | None
    arguments: int | None


@dataclass(frozen=True, slots=True)
class DropRow:
    reason: str
    n: int
    percent: float


def split_rows(counts: Mapping[str, Any]) -> list[SplitRow]:
    groups, arguments = counts.get("groups", {}), counts.get("arguments", {})
    return [
        SplitRow(name, SPLIT_WORDS[name], n, groups.get(name), arguments.get(name))
        for name, n in in_order(counts.get("rows", {})).items()
    ]


def drop_rows(counts: Mapping[str, Any]) -> list[DropRow]:
    """Most frequent first; percent of all comparisons (or rows that came in)."""
    dropped = counts.get("dropped", {})
    whole = counts.get("comparisons") or sum(dropped.values()) + sum(
        counts.get("rows", {}).values()
    )
    ordered = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return [DropRow(reason, n, 100 * n / whole) for reason, n in ordered]


def tiles(counts: Mapping[str, Any]) -> list[Tile]:
    """The headline figures of a preference dataset, or of its preview."""
    if "comparisons" not in counts:
        return []
    votes, people, chance = counts["votes"], counts["annotators"], counts["chance_keep_rate"]
    share = counts["kept"] / counts["comparisons"] if counts["comparisons"] else None
    return [
        Tile(
            "Kept",
            f"{counts['kept']:,}",
            _percent(share),
            f"of {counts['comparisons']:,} comparisons",
        ),
        Tile(
            "A coin-flip crowd would pass",
            _percent(chance) or "—",
            "",
            "of the same comparisons, by chance alone",
        ),
        Tile(
            "Votes that decide",
            f"{votes['deciding']:,}",
            "",
            f"{people['training']:,} annotators behind the training rows",
        ),
        Tile(
            "Held-out annotators",
            f"{people['held_out']:,}",
            "",
            f"{votes['held_out_rows']:,} of their {votes['held_out']:,} votes are measured on",
        ),
    ]


def figures(counts: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """What a preview and a dataset's page have in common."""
    return {
        "tiles": tiles(counts),
        "splits": split_rows(counts),
        "drops": drop_rows(counts),
        "warnings": warnings,
    }


def detail(snapshot: Snapshot) -> dict[str, Any]:
    """The parts of a dataset's page that its counts give."""
    return figures(snapshot.counts, snapshot.counts.get("warnings", [])) | {
        "facts": recipe_facts(snapshot.recipe),
    }


def recipe_facts(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, words) of what was chosen; filters that filter nothing are left out."""
    if "least_votes" not in recipe:
        return []
    filters = recipe.get("filters", {})
    chosen = [
        (
            "Rule",
            f"at least {recipe['least_votes']} votes, {recipe['least_agreeing']} agreeing, "
            f"a share of {recipe['least_share']:g}",
        ),
        ("Held-out groups", ", ".join(recipe["heldout_groups"]) or "none"),
        ("Held-out annotators", f"{_percent(recipe['heldout_annotators'])} of people, by hash"),
        (
            "Splits",
            ", ".join(f"{k} {_percent(v)}" for k, v in in_order(recipe["splits"]).items() if v),
        ),
        ("Split by", recipe["split_by"]),
        ("Ties", "dropped and counted" if recipe["ties"] == "drop" else recipe["ties"]),
        ("Seed", recipe["seed"]),
    ]
    for name, value in filters.items():
        if value:
            words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            chosen.append((name.replace("_", " ").capitalize(), words))
    return chosen


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.3g} %"
