"""Writes `workers/contract/recipes.json`, what the web side's forms know of the recipes."""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from workers.config import SETTINGS
from workers.config.presets import PRESETS, PURPOSES
from workers.contract.recipes import FILE
from workers.recipes.drill import DrillSettings

_TYPES = {int: "int", float: "float", str: "str", bool: "bool"}


def document() -> str:
    """The file's text."""
    kinds = {**SETTINGS, "drill": DrillSettings}
    content = {
        kind: {
            "fields": _rows(cls),
            "presets": PRESETS.get(kind, {}),
            "purposes": PURPOSES.get(kind, {}),
        }
        for kind, cls in kinds.items()
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _rows(cls: type) -> list[dict[str, Any]]:
    hints = typing.get_type_hints(cls)
    rows = []
    for f in fields(cls):
        limits = f.metadata["option"]
        kind, optional = _type(hints[f.name])
        rows.append(
            {
                "name": f.name.rstrip("_"),
                "type": kind,
                "optional": optional,
                "default": f.default_factory() if f.default is MISSING else f.default,
                "doc": limits.doc,
                "unit": limits.unit,
                "minimum": limits.minimum,
                "maximum": limits.maximum,
                "above": limits.above,
                "choices": list(limits.choices),
            }
        )
    return rows


def _type(hint: Any) -> tuple[str, bool]:
    """(name of the type, whether None fits too)."""
    optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
    if optional:
        hint = next(arg for arg in hint.__args__ if arg is not type(None))
    origin = typing.get_origin(hint)
    if origin is not None:
        return ("object" if issubclass(origin, Mapping) else "list"), optional
    return _TYPES[hint], optional


if __name__ == "__main__":
    FILE.write_text(document())
