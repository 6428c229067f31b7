"""What each setting of a recipe costs by itself, in pairs that are decided without it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.material import Material
from apps.snapshots.recipe import DROP, KTO, RecipeFilters, SnapshotRecipe

WORTH_SAYING = 0.2  # of the decided pairs


@dataclass(frozen=True, slots=True)
class Loss:
    """`lost` of `decided` pairs are in no file because of the setting `name`, even if every other
    one kept all it could. n: what the setting names (people held out, groups taken…)."""

    name: str
    lost: int
    decided: int
    n: int = 0


def losses_of(
    material: Material, recipe: SnapshotRecipe, usual: SnapshotRecipe
) -> tuple[Loss, ...]:
    """The settings that lose over a fifth of the decided pairs each, in the recipe's order.

    usual: the project's own recipe, whose rule is the neutral one: pairs that it does not decide
    are lost to no setting. Everything else is neutral where it leaves nothing out.
    """
    names = [name for name, neutral in _NEUTRAL.items() if _of(recipe, name) != neutral(usual)]
    if not names:
        return ()
    everything = recipe
    for name in names:
        everything = _with(everything, name, _NEUTRAL[name](usual))
    found = []
    for name in names:
        # Which pairs have a winner is asked by the tie policy that is wanted, but for its own cost.
        free = everything if name == "ties" else _with(everything, "ties", recipe.ties)
        alone = _with(free, name, _of(recipe, name))
        decided, kept = _kept(material, free), _kept(material, alone)
        if decided["kept"] - kept["kept"] > WORTH_SAYING * decided["kept"]:
            n = kept["annotators"]["held_out"] if name == "heldout_annotators" else 0
            lost = decided["kept"] - kept["kept"]
            found.append(Loss(name, lost, decided["kept"], n or _size(_of(recipe, name))))
    return tuple(found)


# What leaves nothing out, by setting; those of the rule are the project's.
_NEUTRAL: Mapping[str, Callable[[SnapshotRecipe], Any]] = {
    **{
        name: lambda usual, name=name: getattr(usual, name)
        for name in ("decide_by", "least_votes", "least_agreeing", "least_share", "least_posterior")
    },
    "rulings": lambda usual: usual.rulings,
    "ties": lambda usual: KTO,
    "heldout_groups": lambda usual: (),
    "heldout_annotators": lambda usual: 0.0,
    **dict.fromkeys(("groups", "topics", "batches", "without_annotators_of"), lambda usual: ()),
    "left_out": lambda usual: (),
    "half": lambda usual: "",
    **dict.fromkeys(("cast_from", "cast_before"), lambda usual: None),
}
_FILTERS = frozenset(RecipeFilters.__dataclass_fields__)


def _of(recipe: SnapshotRecipe, name: str) -> Any:
    if name == "ties":  # both other policies keep what is decided as a tie in training
        return recipe.ties if recipe.ties == DROP else KTO
    return getattr(recipe.filters if name in _FILTERS else recipe, name)


def _with(recipe: SnapshotRecipe, name: str, value: Any) -> SnapshotRecipe:
    if name in _FILTERS:
        return replace(recipe, filters=replace(recipe.filters, **{name: value}))
    return replace(recipe, **{name: value})


def _kept(material: Material, recipe: SnapshotRecipe) -> Mapping[str, Any]:
    barred = material.barred if recipe.filters.without_annotators_of else frozenset()
    return assemble(replace(material, barred=barred), recipe).counts


def _size(value: Any) -> int:
    return len(value) if isinstance(value, tuple) else 0
