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
from measures.splits import unit_hash
from measures.voting import PosteriorRule, Rule

# The files a dataset is split into, by name: what each is for and who may read it.

TRAIN, SMOKE, DEV, PUBLIC_TEST = "train", "smoke", "dev", "public_test"
PRIVATE_TEST, HUMAN_AUDIT = "private_test", "human_audit"
HELDOUT_GROUPS, HELDOUT_ANNOTATORS = "heldout_groups", "heldout_annotators"
# Drawn by hash, in this order, which is part of the assignment; the two hold-outs are chosen by
# name and by annotator.
DRAWN_SPLITS = (TRAIN, SMOKE, DEV, PUBLIC_TEST, PRIVATE_TEST, HUMAN_AUDIT)
SPLITS = (*DRAWN_SPLITS, HELDOUT_GROUPS, HELDOUT_ANNOTATORS)
# Kept in a tree of their own, which no run is given: what nobody sees nobody tunes on.
PRIVATE_SPLITS = frozenset({PRIVATE_TEST, HUMAN_AUDIT})
# Looks at a split before a second person is asked, unless an admin says otherwise; others have no
# such number: every training reports on them.
DEFAULT_LOOKS: Mapping[str, int] = {PRIVATE_TEST: 5}
DEFAULT_SHARES: Mapping[str, float] = {
    TRAIN: 0.8,
    SMOKE: 0.01,
    DEV: 0.09,
    PUBLIC_TEST: 0.06,
    PRIVATE_TEST: 0.02,
    HUMAN_AUDIT: 0.02,
}
# Of annotators, where a project has so many that it can spare them.
HELD_OUT_SHARE = 0.2


def in_order(by_split: Mapping[str, Any]) -> dict[str, Any]:
    """The same, training first: what comes back from the database has lost its order."""
    return {name: by_split[name] for name in SPLITS if name in by_split}


def public(by_split: Mapping[str, Any]) -> dict[str, Any]:
    """Without the private ones, in order."""
    return {k: v for k, v in in_order(by_split).items() if k not in PRIVATE_SPLITS}


__all__ = [
    "BALANCE",
    "DEFAULT_LOOKS",
    "DEV",
    "DRAWN_SPLITS",
    "HELDOUT_ANNOTATORS",
    "HELDOUT_GROUPS",
    "HUMAN_AUDIT",
    "PRIVATE_SPLITS",
    "PRIVATE_TEST",
    "PUBLIC_TEST",
    "SMOKE",
    "SPLITS",
    "TRAIN",
    "RecipeFilters",
    "SnapshotRecipe",
    "in_order",
    "moments",
    "public",
]

SPLIT_BY = ("auto", "group", "argument")
DROP, SOFT, KTO = "drop", "soft", "kto"
TIE_POLICIES = (DROP, SOFT, KTO)
PUBLISHED, SINGLE = "published", "single_votes"
DECIDE_BY = ("votes", "one_coin", "dawid_skene", "mace", SINGLE, PUBLISHED)
OVERRIDE, IGNORE = "override", "ignore"
RULINGS = (OVERRIDE, IGNORE)
JOIN, REFUSE = "join", "refuse"
NEAR_DUPLICATES = (JOIN, REFUSE)
LENGTH, TOPIC, UNSAFE = "length", "topic", "unsafe"
BALANCE = (LENGTH, TOPIC, UNSAFE)
HALVES = FIRST, SECOND = "first", "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFilters:
    """Which comparisons and votes may enter. An empty tuple or None filters nothing.

    `left_out` are the people an admin has left out, as of when the recipe was made: their ids are
    kept here so that the recipe gives the same files after they are let in again.

    `half`: where nobody can be held out, one half of the groups teaches the reward model and the
    other its judge. It does not depend on the seed, so the two never meet.
    """

    groups: tuple[str, ...] = ()
    without_groups: tuple[str, ...] = ()
    half: str = ""  # first or second: of the groups, by the hash of each
    topics: tuple[str, ...] = ()
    without_topics: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    comparisons: tuple[int, ...] = ()  # ids; what was picked one by one
    strata: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()  # ids of people
    without_annotators: tuple[int, ...] = ()  # ids of people
    without_annotators_of: tuple[str, ...] = ()  # snapshots: who voted in their training rows
    cast_from: str | None = None  # ISO 8601 with an offset; votes cast at or after it
    cast_before: str | None = None  # votes cast before it


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecipe:
    """Everything a freeze depends on beside the votes.

    decide_by: `votes` decides by the three numbers; a model of the voters by `least_votes` and
    `least_posterior`; `single_votes` keeps every comparison with a vote, as a soft label that says
    how reliable its voter is, and asks none of the numbers; `published` takes the label that a
    comparison was imported with, whoever voted. rulings: whether what a person ruled overrides the
    votes. `splits` are shares of groups (or of argument components) that sum to 1.
    `heldout_annotators` is the share of people whose votes decide no row; what a project can spare,
    `selectors.snapshots.recipe_default` says.
    `split_by` auto takes groups where there are enough of them, otherwise connected components of
    arguments. near_duplicates: texts at least
    `duplicate_similarity` alike become one unit, or stop the freeze when they stand on both sides
    of a split. balance: what training rows are weighted evenly over; no weight exceeds `weight_cap`
    times the mean. most_train_rows: 0 for all; otherwise so many, drawn evenly over the strata.
    half_life_days: after so many days a vote counts half, None for always the same.
    name_annotators: rows name who voted, by this dataset's pseudonyms, and for what.
    """

    decide_by: str = "votes"
    least_votes: int = 3
    least_agreeing: int = 3
    least_share: float = 0.6
    least_posterior: float = 0.9
    rulings: str = OVERRIDE
    filters: RecipeFilters = field(default_factory=RecipeFilters)
    heldout_groups: tuple[str, ...] = ()
    heldout_annotators: float = 0.0
    splits: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_SHARES))
    split_by: str = "auto"
    near_duplicates: str = JOIN
    duplicate_similarity: float = 0.8
    ties: str = DROP
    balance: tuple[str, ...] = ()
    weight_cap: float = 5.0
    most_train_rows: int = 0
    half_life_days: float | None = None
    reliability_weights: bool = False
    name_annotators: bool = False
    seed: str = "concord"

    def __post_init__(self) -> None:
        self._check_rule()
        self._check_splits()
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise _bad(name, f"must be one of {', '.join(allowed)}")
        if set(self.balance) - set(BALANCE):
            raise _bad("balance", f"must name some of {', '.join(BALANCE)}")
        if not 0.5 <= self.duplicate_similarity <= 1:
            raise _bad("duplicate_similarity", "must lie between 0.5 and 1")
        if not 1 <= self.weight_cap <= 1000:
            raise _bad("weight_cap", "must lie between 1 and 1000")
        if self.most_train_rows < 0:
            raise _bad("most_train_rows", "must be 0 (all) or more")
        if self.half_life_days is not None and not 0 < self.half_life_days < math.inf:
            raise _bad("half_life_days", "must be over 0, or null for no ageing")
        if self.name_annotators and self.ties == KTO:
            raise _bad("name_annotators", "is for pairs; single answers name nobody")
        if self.decide_by == SINGLE and self.ties != SOFT:
            raise _bad("ties", "must be soft where single votes decide: one vote is no certainty")
        if self.filters.half not in ("", *HALVES):
            raise _bad("filters.half", f"must be one of {', '.join(HALVES)}, or empty")
        both = set(self.heldout_groups) & set(self.filters.without_groups)
        if both:
            raise _bad("heldout_groups", f"'{min(both)}' is also left out by the filters")
        start, end = (_moment(self.filters, name) for name in ("cast_from", "cast_before"))
        if start and end and start >= end:
            raise _bad("filters.cast_before", "must come after cast_from")

    def _check_rule(self) -> None:
        try:
            _ = self.rule, self.posterior_rule
        except ValueError as error:
            name = str(error).split(" ", 1)[0]
            raise DomainError(f"The rule: {error}.", code="bad_recipe", field=name) from error

    def _check_splits(self) -> None:
        if not 0 <= self.heldout_annotators < 1:
            raise _bad("heldout_annotators", "must be a share from 0 to under 1")
        if set(self.splits) - set(DRAWN_SPLITS) or min(self.splits.values(), default=-1) < 0:
            raise _bad("splits", f"must give shares of {', '.join(DRAWN_SPLITS)}")
        fits = max(self.splits.values()) <= 1  # so that no sum overflows
        if not fits or not math.isclose(math.fsum(self.splits.values()), 1, abs_tol=1e-9):
            raise _bad("splits", "must sum to 1")
        if not self.splits.get(TRAIN):
            raise _bad("splits", "leave nothing to train on")

    @property
    def rule(self) -> Rule:
        """Without a maximum: a snapshot takes the votes there are, no more come."""
        return Rule(self.least_votes, self.least_agreeing, self.least_share, None)

    @property
    def posterior_rule(self) -> PosteriorRule:
        return PosteriorRule(self.least_posterior, self.least_votes, None)

    @property
    def by_model(self) -> bool:
        """Whether a posterior decides, by the two numbers of `posterior_rule`."""
        return self.decide_by not in ("votes", SINGLE, PUBLISHED)

    @property
    def shares(self) -> dict[str, float]:
        """The splits in their fixed order, which is part of the assignment: JSON has none."""
        return {name: self.splits.get(name, 0.0) for name in DRAWN_SPLITS}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `recipe_from_json` is its inverse. A list of comparisons, a half of
        the groups and names of annotators stand only where they were chosen: recipes without them
        keep the bytes they always had."""
        plain = _plain(asdict(self))
        if not self.name_annotators:
            del plain["name_annotators"]
        for name in ("comparisons", "half"):
            if not plain["filters"][name]:
                del plain["filters"][name]
        return plain


_CHOICES = {
    "decide_by": DECIDE_BY,
    "rulings": RULINGS,
    "split_by": SPLIT_BY,
    "near_duplicates": NEAR_DUPLICATES,
    "ties": TIE_POLICIES,
}


def half_of(group: str) -> str:
    """first or second, of datasets of votes and of imported ones alike: a prompt is on one side."""
    return FIRST if unit_hash(group, "half") < 0.5 else SECOND


def moments(filters: RecipeFilters) -> tuple[dt.datetime | None, dt.datetime | None]:
    """The time range of votes, as aware datetimes: from (inclusive), before (exclusive)."""
    return _moment(filters, "cast_from"), _moment(filters, "cast_before")


def _moment(filters: RecipeFilters, name: str) -> dt.datetime | None:
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


# Recipes as they come from forms, programs and the database.

_LARGEST = 2**53  # beyond it not every whole number is a float


def recipe_from_json(data: Mapping[str, Any]) -> SnapshotRecipe:
    """Raises `DomainError` (bad_recipe) naming the field; unknown fields are refused."""
    values = _values(SnapshotRecipe, data, "")
    if "filters" in values:
        values["filters"] = RecipeFilters(**_values(RecipeFilters, values["filters"], "filters."))
    return SnapshotRecipe(**values)


def recipe_from_stored(data: Mapping[str, Any]) -> SnapshotRecipe:
    """The recipe of an older snapshot: what it does not say has its default, and what is no longer
    a field is passed over."""
    known = _known(SnapshotRecipe, data)
    if isinstance(known.get("filters"), Mapping):
        known["filters"] = _known(RecipeFilters, known["filters"])
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
    if "RecipeFilters" not in wanted and not _is(value, kind):
        raise _bad(name, f"must be {'text' if kind is str else 'a number'}")
    return float(value) if kind is float else value


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) > _LARGEST):
        return False
    if isinstance(value, str) and "\x00" in value:
        return False  # which no database text can hold
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
