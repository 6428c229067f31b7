"""Pairs whose better answer is known, which are asked about and never learned from."""

from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import TRAIN, Preference, evaluation_splits, read_preferences
from workers.rollouts.local import derive_seed
from workers.samples import choose


def known_pairs(context: RunContext, role: str, *, most: int) -> list[Preference]:
    """At most so many of the input `role`, by seed: held-out rows where there are any. Ties teach
    nothing. Raises `RecipeError` (no_rows) where no pair is decided."""
    folder = context.input_path(role)
    rows: list[Preference] = []
    for split in evaluation_splits(folder):
        rows += _decided(read_preferences(folder, split))
    rows = rows or _decided(read_preferences(folder, TRAIN))
    if not rows:
        told = f"the input '{role}' has no pair of which one answer is the better"
        raise RecipeError("no_rows", Fault.DATA, told)
    return [rows[i] for i in choose(len(rows), most, derive_seed(context.spec.seed, role))]


def _decided(rows: list[Preference]) -> list[Preference]:
    return [row for row in rows if row.chosen != row.rejected and row.confidence > 0.5]
