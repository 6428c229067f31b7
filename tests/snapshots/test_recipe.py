"""Recipes as they come from forms and programs."""

import json
import re
from pathlib import Path

import pytest

from apps.common.errors import DomainError
from apps.snapshots.recipe import Filters, SnapshotRecipe, recipe_from_json


def test_a_recipe_survives_its_json_form() -> None:
    recipe = SnapshotRecipe(
        least_votes=2,
        least_agreeing=2,
        filters=Filters(groups=("b",), without_annotators=(3, 7), cast_from="2026-01-01T00:00Z"),
        heldout_groups=("x",),
        splits={"train": 0.5, "dev": 0.5},
    )
    assert recipe_from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_picked_comparisons_stand_in_a_recipe_only_where_there_are_some() -> None:
    assert "comparisons" not in SnapshotRecipe().to_json()["filters"]
    picked = SnapshotRecipe(filters=Filters(comparisons=(3, 7)))
    assert picked.to_json()["filters"]["comparisons"] == [3, 7]
    assert recipe_from_json(picked.to_json()) == picked


def test_the_order_of_the_splits_does_not_depend_on_the_json() -> None:
    one = recipe_from_json({"splits": {"dev": 0.5, "train": 0.5}})
    other = recipe_from_json({"splits": {"train": 0.5, "dev": 0.5}})
    assert list(one.shares.items()) == list(other.shares.items())


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"least_share": 1.5}, "least_share"),
        ({"least_votes": 0}, "least_votes"),
        ({"least_votes": True}, "least_votes"),
        ({"least_agreeing": 2.5}, "least_agreeing"),
        ({"heldout_annotators": 1}, "heldout_annotators"),
        ({"heldout_annotators": float("nan")}, "heldout_annotators"),
        ({"splits": {"train": 0.5}}, "splits"),
        ({"splits": {"dev": 1.0}}, "splits"),
        ({"splits": {"train": 0.9, "secret": 0.1}}, "splits"),
        ({"splits": {"train": float("nan"), "dev": 1.0}}, "splits"),
        ({"splits": {"train": 1e308, "dev": 1e308}}, "splits"),
        ({"splits": {"train": 10**400}}, "splits"),
        ({"least_share": 10**400}, "least_share"),
        ({"least_votes": 10**30}, "least_votes"),
        ({"filters": {"without_annotators": [10**30]}}, "filters.without_annotators"),
        ({"split_by": "row"}, "split_by"),
        ({"ties": "coin"}, "ties"),
        ({"seed": None}, "seed"),
        ({"seed": "x\x00"}, "seed"),
        ({"filters": {"topics": ["x\x00"]}}, "filters.topics"),
        ({"filters": []}, "filters"),
        ({"filters": {"groups": "a"}}, "filters.groups"),
        ({"filters": {"without_annotators": ["ana"]}}, "filters.without_annotators"),
        ({"filters": {"cast_from": "yesterday"}}, "filters.cast_from"),
        ({"filters": {"cast_from": "2026-01-01"}}, "filters.cast_from"),
        (
            {"filters": {"cast_from": "2026-02-01T00:00Z", "cast_before": "2026-01-01T00:00Z"}},
            "filters.cast_before",
        ),
        ({"filters": {"colour": "red"}}, "filters.colour"),
        ({"heldout_groups": ["x"], "filters": {"without_groups": ["x"]}}, "heldout_groups"),
        ({"tie_policy": "drop"}, "tie_policy"),
        ([], "recipe"),
    ],
)
def test_a_bad_recipe_names_its_field(data: object, field: str) -> None:
    with pytest.raises(DomainError) as refused:
        recipe_from_json(data)
    assert refused.value.code == "bad_recipe"
    assert refused.value.field == field


def test_the_documented_recipe_is_the_default_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", text, re.S)
    assert json.loads(block) == SnapshotRecipe().to_json()
