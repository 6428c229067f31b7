"""What each recipe's configuration may hold, for forms on the web side.

The declarations live beside the recipes (`workers/recipes/settings`), which the web side does not
import; `recipes.json` here is their copy, written by `python -m workers.config` and kept
true by a test. A worker checks a configuration again with its own version.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("recipes.json")


@dataclass(frozen=True, slots=True)
class RecipeField:
    """One field: its type (int, float, str, bool, list or object), default and limits.

    `optional`: None is a value of its own, meaning what `doc` says. `above` excludes its bound,
    `minimum` and `maximum` include theirs.
    """

    name: str
    type: str
    optional: bool
    default: Any
    doc: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()


@cache
def _read() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def recipe_fields(kind: str) -> list[RecipeField]:
    """The fields of a kind in the order of its declaration; none for a kind without a recipe."""
    rows = _read().get(kind, {}).get("fields", [])
    return [RecipeField(**row | {"choices": tuple(row["choices"])}) for row in rows]


def recipe_presets(kind: str) -> Mapping[str, dict[str, Any]]:
    """Named sets of values to start from."""
    return _read().get(kind, {}).get("presets", {})


def preset_purposes(kind: str) -> Mapping[str, str]:
    """What each preset is for, in a sentence; a preset may have none."""
    return _read().get(kind, {}).get("purposes", {})


def recipe_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with its preset written out, as the recipe will read it; defaults are not added.

    A preset this version does not know stays named.
    """
    own = dict(config)
    values = recipe_presets(kind).get(own.get("preset", ""))
    if values is None:
        return own
    del own["preset"]
    return dict(values) | own
