"""Recipes as they come from forms, programs and the database."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from apps.common.errors import DomainError
from apps.snapshots.recipe import Filters, SnapshotRecipe

_LARGEST = 2**53  # beyond it not every whole number is a float


def recipe_from_json(data: Mapping[str, Any]) -> SnapshotRecipe:
    """Raises `DomainError` (bad_recipe) naming the field; unknown fields are refused."""
    values = _values(SnapshotRecipe, data, "")
    if "filters" in values:
        values["filters"] = Filters(**_values(Filters, values["filters"], "filters."))
    return SnapshotRecipe(**values)


def recipe_from_stored(data: Mapping[str, Any]) -> SnapshotRecipe:
    """The recipe of an older snapshot: what it does not say has its default, and what is no longer
    a field is passed over."""
    known = _known(SnapshotRecipe, data)
    if isinstance(known.get("filters"), Mapping):
        known["filters"] = _known(Filters, known["filters"])
    return recipe_from_json(known)


def _known(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {name: value for name, value in data.items() if name in names}


def _values(cls: type, data: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise _bad(prefix.rstrip(".") or "recipe", "must be an object")
    known = {f.name: f for f in fields(cls)}
    values = {}
    for name, value in data.items():
        if name not in known:
            raise _bad(f"{prefix}{name}", "is no field of a recipe")
        values[name] = _fit(f"{prefix}{name}", _type_name(known[name].type), value)
    return values


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _fit(name: str, wanted: str, value: Any) -> Any:
    """`value` in the type that the annotation names; nothing else bends but lists to tuples."""
    if "tuple[" in wanted:
        kind = int if "int" in wanted else str
        if not isinstance(value, list | tuple) or not all(_is(item, kind) for item in value):
            raise _bad(name, f"must be a list of {'numbers' if kind is int else 'texts'}")
        return tuple(sorted(set(value)))
    if "Mapping[" in wanted:
        if not isinstance(value, Mapping) or not all(_is(v, float) for v in value.values()):
            raise _bad(name, "must be an object of shares")
        return {str(key): float(share) for key, share in value.items()}
    if value is None and "None" in wanted:
        return None
    if wanted == "bool":
        if not isinstance(value, bool):
            raise _bad(name, "must be true or false")
        return value
    kind = int if "int" in wanted else float if "float" in wanted else str
    if "Filters" not in wanted and not _is(value, kind):
        raise _bad(name, f"must be {'text' if kind is str else 'a number'}")
    return float(value) if kind is float else value


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) > _LARGEST):
        return False
    if isinstance(value, str) and "\x00" in value:
        return False  # which no database text can hold
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _bad(name: str, what: str) -> DomainError:
    return DomainError(f"{name} {what}.", code="bad_recipe", field=name)
