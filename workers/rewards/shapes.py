"""Whether a JSON value has a shape: the part of JSON Schema that settings.reward_rules allows."""

from collections.abc import Mapping
from typing import Any

from workers.rewards.expressions import Expression


def misfit(value: Any, shape: Mapping[str, Any], where: str = "the answer") -> str | None:
    """The first thing that does not fit, in words; None if all does."""
    kind = shape.get("type")
    if kind is not None and not _is(value, kind):
        return f"{where} is no {kind}"
    if "const" in shape and not _equal(value, shape["const"]):
        return f"{where} is not the constant"
    if "enum" in shape and not any(_equal(value, one) for one in shape["enum"]):
        return f"{where} is none of the allowed values"
    if isinstance(value, dict):
        return _object(value, shape, where)
    if isinstance(value, list):
        size = _outside(len(value), shape, "minItems", "maxItems")
        inner = shape.get("items") or {}
        each = (misfit(one, inner, f"{where}[{i}]") for i, one in enumerate(value))
        return f"{where} has {size} items" if size else next(filter(None, each), None)
    if isinstance(value, str):
        if size := _outside(len(value), shape, "minLength", "maxLength"):
            return f"{where} has {size} characters"
        pattern = shape.get("pattern")
        if pattern and not Expression(pattern, where="shape.pattern").search(value):
            return f"{where} does not match its pattern"
    if _is(value, "number") and (size := _outside(value, shape, "minimum", "maximum")):
        return f"{where} is {size}"
    return None


def _object(value: dict[str, Any], shape: Mapping[str, Any], where: str) -> str | None:
    known = shape.get("properties") or {}
    for name in shape.get("required") or ():
        if name not in value:
            return f"{where} lacks {name}"
    if shape.get("additionalProperties") is False:
        for name in value:
            if name not in known:
                return f"{where} has {name}, which is not asked for"
    each = (misfit(value[n], inner, f"{where}.{n}") for n, inner in known.items() if n in value)
    return next(filter(None, each), None)


def _is(value: Any, kind: str) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "number": (int, float),
        "null": type(None),
    }
    return isinstance(value, types[kind])


def _equal(a: Any, b: Any) -> bool:
    """Python takes True for 1, and JSON does not."""
    return a == b and isinstance(a, bool) is isinstance(b, bool)


def _outside(size: float, shape: Mapping[str, Any], least: str, most: str) -> str | None:
    if least in shape and size < shape[least]:
        return f"{size:g}, under {shape[least]:g},"
    if most in shape and size > shape[most]:
        return f"{size:g}, over {shape[most]:g},"
    return None
