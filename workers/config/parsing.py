"""How a recipe's settings are declared and checked, for forms, the API and trainers alike.

Settings are a frozen dataclass whose fields are made by `option`. `read` reports every error of a
configuration together, so that a person corrects it in one go. No torch, no Django.
"""

import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from workers.contract.events import Fault, RecipeError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
MOST_ERRORS = 50  # of one configuration, in one answer
_MOST_COMPARED, _LONGEST_COMPARED = 20, 60  # unknown names, and their characters


class Section(StrEnum):
    """The heading under which a form shows a field, in the order of the page."""

    MODEL = "Model"
    MEMORY = "Precision and memory"
    DATA = "Data"
    ROLLOUTS = "Rollouts"
    PEOPLE = "People"
    ACTORS = "Actors beyond this process"
    REWARD = "Reward"
    REFERENCE = "Divergence from the reference"
    UPDATE = "Update"
    GUARDRAILS = "Guardrails and early stop"
    BOOKKEEPING = "Bookkeeping"
    OTHER = "Other settings"


@dataclass(frozen=True, slots=True)
class Option:
    """What a person must know of one field: unit, when to change it, and what values fit.

    `main`: shown at once in a form; the others wait behind "All settings".
    `chosen`: no value fits every model, so a new run gives it, itself or by its preset; the
    default is what runs without one were trained with.
    """

    doc: str
    unit: str = ""
    minimum: float | None = None  # inclusive
    maximum: float | None = None  # inclusive
    above: float | None = None  # exclusive lower bound
    choices: tuple[str, ...] = ()
    section: Section = Section.OTHER
    main: bool = False
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field as a form asks for it: its type (int, float, str, bool, object or list), default
    and limits. `optional`: None is a value of its own, meaning what the option's `doc` says."""

    name: str
    type: str
    optional: bool
    default: Any
    option: Option


class SettingsError(RecipeError):
    """A configuration that the recipe refuses. Each of `errors` is "path of the field: reason"."""

    def __init__(self, errors: Sequence[str]) -> None:
        told = sorted(set(errors))
        more = len(told) - MOST_ERRORS
        self.errors = told[:MOST_ERRORS]
        if more > 0:
            self.errors.append(
                f"{told[MOST_ERRORS].partition(': ')[0]}: and {more - 1} more errors"
            )
        super().__init__("bad_config", Fault.CONFIGURATION, "; ".join(self.errors))


def option(default: Any, doc: str, **limits: Any) -> Any:
    """A dataclass field that carries its `Option` as metadata."""
    metadata = {"option": Option(doc=doc, **limits)}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def read(
    cls: type[Config], values: Mapping[str, Any], *, where: str = "", what: str = "this recipe"
) -> tuple[Config | None, list[str]]:
    """(`cls` from decoded JSON or None, every error of it). Each error begins with the path of its
    field, below `where`. A field whose name is a word of Python ends with an underscore here and
    not in JSON."""
    known = {f.name.rstrip("_"): f for f in fields(cls)}
    hints = typing.get_type_hints(cls)
    unknown = [name for name in values if name not in known]
    wrong = {name: f"{name}: is no field of {what}" for name in unknown}
    for name in unknown[:_MOST_COMPARED]:
        if close := difflib.get_close_matches(name[:_LONGEST_COMPARED], known, n=1):
            wrong[name] += f" (is '{close[0]}' meant?)"
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


def setting_fields(cls: type) -> list[SettingField]:
    """The fields of a class of settings, in the order of their declaration."""
    hints = typing.get_type_hints(cls)
    found = []
    for f in fields(cls):
        name, optional = _type_name(hints[f.name])
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        found.append(
            SettingField(f.name.rstrip("_"), name, optional, default, f.metadata["option"])
        )
    return found


def _type_name(hint: Any) -> tuple[str, bool]:
    """(name of the type in JSON's terms, whether None fits too)."""
    optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
    if optional:
        hint = next(arg for arg in hint.__args__ if arg is not type(None))
    origin = typing.get_origin(hint)
    if origin is None:
        return hint.__name__, optional
    return ("list" if origin is tuple else "object"), optional


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
