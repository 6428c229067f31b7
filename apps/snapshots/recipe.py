"""What a preference snapshot is made by: the rule, the filters, the hold-outs, the splits, a seed.

A recipe is stored with its snapshot, whole: the same recipe over the same votes gives the same
files, byte for byte.
"""

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from apps.common.errors import DomainError
from measures.voting import Rule

TRAIN, DEV, PUBLIC_TEST = "train", "dev", "public_test"
HELDOUT_GROUPS, HELDOUT_ANNOTATORS = "heldout_groups", "heldout_annotators"
# Splits drawn by hash; the two hold-outs are chosen by name and by annotator.
DRAWN_SPLITS = (TRAIN, DEV, PUBLIC_TEST)
SPLITS = (*DRAWN_SPLITS, HELDOUT_GROUPS, HELDOUT_ANNOTATORS)
SPLIT_BY = ("auto", "group", "argument")
TIE_POLICIES = ("drop",)


def in_order(by_split: Mapping[str, Any]) -> dict[str, Any]:
    """The same, training first: what comes back from the database has lost its order."""
    return {name: by_split[name] for name in SPLITS if name in by_split}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which comparisons and votes may enter. An empty tuple or None filters nothing."""

    groups: tuple[str, ...] = ()
    without_groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    without_topics: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    without_annotators: tuple[int, ...] = ()  # ids of people
    without_annotators_of: tuple[str, ...] = ()  # snapshots: who voted in their training rows
    cast_from: str | None = None  # ISO 8601 with an offset; votes cast at or after it
    cast_before: str | None = None  # votes cast before it


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecipe:
    """`splits` are shares of groups (or of argument components) that sum to 1.

    `heldout_annotators` is the share of people whose votes decide no row; `split_by` auto takes
    groups where there are enough of them, otherwise connected components of arguments.
    """

    least_votes: int = 3
    least_agreeing: int = 3
    least_share: float = 0.6
    filters: Filters = field(default_factory=Filters)
    heldout_groups: tuple[str, ...] = ()
    heldout_annotators: float = 0.2
    splits: Mapping[str, float] = field(
        default_factory=lambda: {TRAIN: 0.8, DEV: 0.1, PUBLIC_TEST: 0.1}
    )
    split_by: str = "auto"
    ties: str = "drop"
    seed: str = "concord"

    def __post_init__(self) -> None:
        self._check_rule()
        if not 0 <= self.heldout_annotators < 1:
            raise _bad("heldout_annotators", "must be a share from 0 to under 1")
        if set(self.splits) - set(DRAWN_SPLITS) or min(self.splits.values(), default=-1) < 0:
            raise _bad("splits", f"must give shares of {', '.join(DRAWN_SPLITS)}")
        if not math.isclose(math.fsum(self.splits.values()), 1, abs_tol=1e-9):
            raise _bad("splits", "must sum to 1")
        if not self.splits.get(TRAIN):
            raise _bad("splits", "leave nothing to train on")
        if self.split_by not in SPLIT_BY:
            raise _bad("split_by", f"must be one of {', '.join(SPLIT_BY)}")
        if self.ties not in TIE_POLICIES:
            raise _bad("ties", f"must be one of {', '.join(TIE_POLICIES)}")
        both = set(self.heldout_groups) & set(self.filters.without_groups)
        if both:
            raise _bad("heldout_groups", f"'{min(both)}' is also left out by the filters")
        start, end = (_moment(self.filters, name) for name in ("cast_from", "cast_before"))
        if start and end and start >= end:
            raise _bad("filters.cast_before", "must come after cast_from")

    def _check_rule(self) -> None:
        try:
            _ = self.rule
        except ValueError as error:
            name = str(error).split(" ", 1)[0]
            raise DomainError(f"The rule: {error}.", code="bad_recipe", field=name) from error

    @property
    def rule(self) -> Rule:
        """Without a maximum: a snapshot takes the votes there are, no more come."""
        return Rule(self.least_votes, self.least_agreeing, self.least_share, None)

    @property
    def shares(self) -> dict[str, float]:
        """The splits in their fixed order, which is part of the assignment: JSON has none."""
        return {name: self.splits.get(name, 0.0) for name in DRAWN_SPLITS}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `recipe_from_json` is its inverse."""
        return _plain(asdict(self))


def recipe_from_json(data: Mapping[str, Any]) -> SnapshotRecipe:
    """Raises `DomainError` (bad_recipe) naming the field; unknown fields are refused."""
    values = _values(SnapshotRecipe, data, "")
    if "filters" in values:
        values["filters"] = Filters(**_values(Filters, values["filters"], "filters."))
    return SnapshotRecipe(**values)


def moments(filters: Filters) -> tuple[dt.datetime | None, dt.datetime | None]:
    """The time range of votes, as aware datetimes: from (inclusive), before (exclusive)."""
    return _moment(filters, "cast_from"), _moment(filters, "cast_before")


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
    kind = {"int": int, "float": float}.get(wanted, str)
    if value is None and "None" in wanted:
        return None
    if "Filters" not in wanted and not _is(value, kind):
        raise _bad(name, f"must be {'text' if kind is str else 'a number'}")
    return float(value) if kind is float else value


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _moment(filters: Filters, name: str) -> dt.datetime | None:
    text = getattr(filters, name)
    if text is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise _bad(f"filters.{name}", "must be a date and time in ISO 8601") from None
    if moment.tzinfo is None:
        raise _bad(f"filters.{name}", "must name its offset from UTC, such as +00:00")
    return moment


def _bad(name: str, what: str) -> DomainError:
    return DomainError(f"{name} {what}.", code="bad_recipe", field=name)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
