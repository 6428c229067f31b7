"""Comparisons and demonstrations among a run's inputs, whatever their role."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from workers.assess.gather import held_out_split
from workers.context import RecipeError, RunContext
from workers.data.snapshot import (
    TRAIN,
    Demonstration,
    Preference,
    evaluation_splits,
    read_demonstrations,
    read_preferences,
)


@dataclass(frozen=True, slots=True)
class Material:
    preferences: list[Preference] = field(default_factory=list)
    demonstrations: list[Demonstration] = field(default_factory=list)


def material_of(context: RunContext) -> Material:
    """Comparisons from the strictest evaluation file that has enough rows, for a reward model may
    have learned the others; demonstrations from the training file. A file that cannot be read here
    is passed over: whoever needs it says so."""
    found = Material()
    for ref in context.spec.inputs:
        if ref.kind != "snapshot":
            continue
        folder = context.input_path(ref.role)
        names = _first_row(folder / f"{TRAIN}.jsonl")
        try:
            if "chosen" in names:
                rows = {
                    split: read_preferences(folder, split) for split in evaluation_splits(folder)
                }
                held_out = held_out_split({split: len(of) for split, of in rows.items()})
                found.preferences.extend(rows[held_out] if held_out else read_preferences(folder))
            elif "messages" in names:
                found.demonstrations.extend(read_demonstrations(folder))
        except RecipeError:
            continue
    return found


def _first_row(path: Path) -> set[str]:
    """The fields of a file's first row; none where it holds no object."""
    try:
        with path.open(encoding="utf-8") as lines:
            row = json.loads(next(lines))
    except (OSError, StopIteration, ValueError):
        return set()
    return set(row) if isinstance(row, dict) else set()
