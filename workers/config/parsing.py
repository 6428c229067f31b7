"""How a recipe's configuration is declared and checked. No torch: a bad value fails at once.

A configuration is a frozen dataclass whose fields are made by `option`. `parse` reports every
error of a configuration together, so that a person mends it in one go.
"""

import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from workers.context import RecipeError
from workers.contract.events import Fault

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Option:
    """What a person must know of one field: unit, when to change it, and what values fit."""

    doc: str
    unit: str = ""
    minimum: float | None = None  # inclusive
    maximum: float | None = None  # inclusive
    above: float | None = None  # exclusive lower bound
    choices: tuple[str, ...] = ()


def option(default: Any, doc: str, **limits: Any) -> Any:
    """A dataclass field that carries its `Option` as metadata."""
    metadata = {"option": Option(doc=doc, **limits)}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def parse(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """`cls` from decoded JSON. Raises `RecipeError` (bad_config) naming every field that is wrong.

    A class may define `check(self) -> list[str]` for rules that join several fields.
    """
    config, errors = read(cls, values)
    if config is None or errors:
        raise RecipeError("bad_config", Fault.CONFIGURATION, "; ".join(sorted(errors)))
    return config


def read(
    cls: type[Config], values: Mapping[str, Any], *, where: str = "", what: str = "this recipe"
) -> tuple[Config | None, list[str]]:
    """(`cls` from decoded JSON or None, every error of it). Each error begins with the path of its
    field, below `where`. A field whose name is a word of Python ends with an underscore here and
    not in JSON."""
    known = {f.name.rstrip("_"): f for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    wrong = {name: _unknown(name, known, what) for name in values if name not in known}
    fitting: dict[str, Any] = {}
    for name, spec in known.items():
        if name in values:
            try:
                value = _fit(values[name], hints[spec.name])
                _limit(value, spec.metadata.get("option"))
                fitting[spec.name] = value
            except ValueError as error:
                wrong[name] = f"{name}: {error}"
        elif spec.default is MISSING and spec.default_factory is MISSING:
            wrong[name] = f"{name}: is required"
    errors = list(wrong.values())
    config = None
    required = {f.name for f in known.values() if f.default is f.default_factory is MISSING}
    if required <= fitting.keys():
        config = cls(**fitting)
        joint = config.check() if hasattr(config, "check") else []
        # A rule that reads a field which is wrong by itself would complain of its default.
        errors += [text for text in joint if not any(name in text for name in wrong)]
    return (None if errors else config), [where + text for text in errors]


def describe(cls: type) -> list[dict[str, Any]]:
    """One row per field, for documentation and forms."""
    rows = []
    for f in fields(cls):
        option_ = f.metadata["option"]
        default = f.default if f.default is not MISSING else f.default_factory()  # type: ignore[misc]
        name = f.name.rstrip("_")
        rows.append({"name": name, "default": default, "unit": option_.unit, "doc": option_.doc})
    return rows


def _unknown(name: str, known: Mapping[str, Any], what: str) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name}: is no field of {what}" + (f" (is '{close[0]}' meant?)" if close else "")


def _fit(value: Any, hint: Any) -> Any:
    """`value` as the annotated type, or ValueError. Integers pass as floats, nothing else bends."""
    if isinstance(hint, types.UnionType):
        if value is None and type(None) in hint.__args__:
            return None
        hint = next(arg for arg in hint.__args__ if arg is not type(None))
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected a list, got {value!r}")
        return tuple(_fit(item, typing.get_args(hint)[0]) for item in value)
    if origin is not None:  # Mapping[str, Any]
        if not isinstance(value, Mapping):
            raise ValueError(f"expected an object, got {value!r}")
        return dict(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not a finite number")
        return float(value)
    if isinstance(value, bool) is not (hint is bool) or not isinstance(value, hint):
        raise ValueError(f"expected {hint.__name__}, got {value!r}")
    return value


def _limit(value: Any, limits: Option | None) -> None:
    """ValueError when `value` lies outside what the option allows."""
    if limits is None or value is None:
        return
    unit = f" {limits.unit}" if limits.unit else ""
    if limits.choices and value not in limits.choices:
        raise ValueError(f"'{value}' is none of {', '.join(limits.choices)}")
    if limits.minimum is not None and value < limits.minimum:
        raise ValueError(f"{value} is under the least value {limits.minimum}{unit}")
    if limits.maximum is not None and value > limits.maximum:
        raise ValueError(f"{value} is over the greatest value {limits.maximum}{unit}")
    if limits.above is not None and value <= limits.above:
        raise ValueError(f"{value} must be over {limits.above}{unit}")
