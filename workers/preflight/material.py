"""Comparisons and demonstrations among a run's inputs, whatever their role."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

from workers.assess.gather import held_out_split
from workers.context import (
    RunContext,
)
from workers.contract.events import (
    RecipeError,
)
from workers.data.snapshot import (
    TRAIN,
    Demonstration,
    Messages,
    Preference,
    evaluation_splits,
    read_demonstrations,
    read_preferences,
)

COUNTED = 32  # rows whose tokens are counted
TEMPLATE_TOKENS = 32

Row = TypeVar("Row", Preference, Demonstration)


@dataclass(frozen=True, slots=True)
class Material:
    """Rows of the inputs; `held_out`: the prompts of what a training on them does not see."""

    preferences: list[Preference] = field(default_factory=list)
    demonstrations: list[Demonstration] = field(default_factory=list)
    held_out: list[Messages] = field(default_factory=list)

    def replaced(
        self,
        preferences: Sequence[Preference] | None,
        demonstrations: Sequence[Demonstration] | None,
    ) -> "Material":
        """With the rows that a recipe has at hand, where it gives any."""
        return Material(
            self.preferences if preferences is None else list(preferences),
            self.demonstrations if demonstrations is None else list(demonstrations),
            self.held_out,
        )

    def longest(self, tokenizer: PreTrainedTokenizerBase) -> int | None:
        """Tokens of the longest row, prompt and answer, among those with most characters; a little
        is added for what a chat template writes between them. None without rows."""
        texts = [
            (row.prompt, answer)
            for row in self.preferences
            for answer in (row.chosen, row.rejected)
        ]
        texts += [(row.prompt, row.response) for row in self.demonstrations]
        whole = ["\n".join([*(m["content"] for m in prompt), text]) for prompt, text in texts]
        most = sorted(whole, key=len, reverse=True)[:COUNTED]
        if not most:
            return None
        ids = tokenizer(most, add_special_tokens=False)["input_ids"]
        return max(len(row) for row in ids) + TEMPLATE_TOKENS


def material_of(context: RunContext, *, trained_on: bool) -> Material:
    """Comparisons and demonstrations of the training files, where a run is `trained_on` them.

    Else they are there to judge by, and comparisons come from the strictest evaluation file that
    has enough rows, for a reward model may have learned the others. A file that cannot be read here
    is passed over: whoever needs it says so."""
    found = Material()
    for ref in context.spec.inputs:
        if ref.kind != "snapshot":
            continue
        folder = context.input_path(ref.role)
        names = _first_row(folder / f"{TRAIN}.jsonl")
        try:
            if "chosen" in names:
                rows, apart = _both(folder, read_preferences)
                found.preferences.extend(rows if trained_on else apart or rows)
                found.held_out.extend(row.prompt for row in apart)
            elif "messages" in names:
                rows, apart = _both(folder, read_demonstrations)
                found.demonstrations.extend(rows)
                found.held_out.extend(row.prompt for row in apart)
        except RecipeError:
            continue
    return found


def _both(folder: Path, read: Callable[[Path, str], list[Row]]) -> tuple[list[Row], list[Row]]:
    """The training rows, and those of the strictest evaluation file that has enough."""
    files = {split: read(folder, split) for split in evaluation_splits(folder)}
    strictest = held_out_split({split: len(rows) for split, rows in files.items()})
    return read(folder, TRAIN), files[strictest] if strictest else []


def _first_row(path: Path) -> set[str]:
    """The fields of a file's first row; none where it holds no object."""
    try:
        with path.open(encoding="utf-8") as lines:
            row = json.loads(next(lines))
    except (OSError, StopIteration, ValueError):
        return set()
    return set(row) if isinstance(row, dict) else set()
