"""Recipes as they come from forms and programs."""

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from apps.common.errors import DomainError
from apps.snapshots.assembling.assembly import NOT_DRAWN, assemble
from apps.snapshots.assembling.material import Assembly, CurrentVote, Material
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe, recipe_from_json
from measures.weights import even_weights
from tests.snapshots.test_gathering import NOON, pair, recipe


def test_a_recipe_survives_its_json_form() -> None:
    recipe = SnapshotRecipe(
        least_votes=2,
        least_agreeing=2,
        filters=RecipeFilters(
            groups=("b",), without_annotators=(3, 7), cast_from="2026-01-01T00:00Z"
        ),
        heldout_groups=("x",),
        splits={"train": 0.5, "dev": 0.5},
    )
    assert recipe_from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


def test_picked_comparisons_stand_in_a_recipe_only_where_there_are_some() -> None:
    assert "comparisons" not in SnapshotRecipe().to_json()["filters"]
    picked = SnapshotRecipe(filters=RecipeFilters(comparisons=(3, 7)))
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


# Training rows that are drawn and weighted, and what is said of them.


def lengths(n_longer: int, n_shorter: int, **changes) -> Material:
    """So many pairs whose longer (shorter) answer wins 3 to 0."""
    pairs, votes = [], []
    for n in range(n_longer + n_shorter):
        short, long = 100, 200
        a, b = (long, short) if n < n_longer else (short, long)
        pairs.append(pair(n, f"g{n:04}", f"x{n}", f"y{n}", length_a=a, length_b=b, **changes))
        votes += [CurrentVote(10 * n + k, n, k, f"user:{k}", "a", NOON) for k in range(3)]
    return Material(tuple(pairs), tuple(votes))


def said(made: Assembly) -> str:
    return " ".join(made.warnings)


def test_95_percent_long_chosen_is_an_imbalance() -> None:
    made = assemble(lengths(95, 5), recipe())
    assert "in 95% of the 100" in said(made)
    assert "Imbalance" in said(assemble(lengths(5, 95), recipe()))


def test_an_even_dataset_hears_nothing_of_imbalance() -> None:
    assert "Imbalance" not in said(assemble(lengths(60, 40), recipe()))
    assert "Imbalance" not in said(assemble(lengths(9, 0), recipe()))  # too few to say


def test_without_weights_every_row_counts_the_same() -> None:
    made = assemble(lengths(30, 10), recipe())
    assert {line.weight for line in made.lines["train"]} == {1.0}
    assert made.counts["weights"]["effective_rows"] == 40


def test_balancing_by_length_evens_the_strata_and_counts_what_it_costs() -> None:
    made = assemble(lengths(80, 20), recipe(balance=("length",)))
    weights = {line.pair: line.weight for line in made.lines["train"]}
    assert sum(weights[n] for n in range(80)) == pytest.approx(50, abs=1e-3)
    assert sum(weights[n] for n in range(80, 100)) == pytest.approx(50, abs=1e-3)
    figures = made.counts["weights"]
    # Kish: 100² / (80 · 0.625² + 20 · 2.5²)
    assert figures["effective_rows"] == pytest.approx(10_000 / (31.25 + 125), abs=0.1)
    assert figures["strata"]["length"]["longer chosen"] == {"rows": 80, "weight": 50.0}


def test_a_stratum_of_one_percent_is_capped_and_named() -> None:
    made = assemble(lengths(198, 2), recipe(balance=("length",), weight_cap=5.0))
    figures = made.counts["weights"]
    assert (figures["largest"], figures["capped_rows"]) == (5.0, 2)
    assert "2 rows" in said(made)
    assert "length: shorter chosen" in said(made)
    assert sum(line.weight for line in made.lines["train"]) == pytest.approx(200, abs=1e-3)


def test_rows_that_somebody_flagged_unsafe_are_a_stratum() -> None:
    base = lengths(50, 50)
    flagged = tuple(replace(v, unsafe=v.pair < 10 and v.person == 0) for v in base.votes)
    made = assemble(replace(base, votes=flagged), recipe(balance=("unsafe",)))
    by = made.counts["weights"]["strata"]["unsafe"]
    assert by["flagged unsafe"] == {"rows": 10, "weight": 50.0}


def test_only_training_rows_are_weighted() -> None:
    made = assemble(
        lengths(300, 30), recipe(balance=("length",), splits={"train": 0.5, "dev": 0.5})
    )
    assert {line.weight for line in made.lines["dev"]} == {1.0}
    assert len({line.weight for line in made.lines["train"]}) == 2


def test_a_sample_takes_from_every_stratum_alike_and_counts_the_rest() -> None:
    made = assemble(lengths(90, 10), recipe(balance=("length",), most_train_rows=30))
    drawn = {line.pair for line in made.lines["train"]}
    assert (sum(n < 90 for n in drawn), sum(n >= 90 for n in drawn)) == (20, 10)
    assert made.counts["dropped"] == {NOT_DRAWN: 70}
    assert made.counts["kept"] == 30


def test_the_sample_is_drawn_by_hash_and_stays_when_data_grow() -> None:
    wanted = recipe(most_train_rows=50)
    one = {line.pair for line in assemble(lengths(100, 0), wanted).lines["train"]}
    more = {line.pair for line in assemble(lengths(105, 0), wanted).lines["train"]}
    assert len(one & more) >= 45


def test_old_votes_count_half_after_the_half_life_whatever_the_day() -> None:
    base = lengths(20, 20)
    old = tuple(
        replace(v, at=v.at - dt.timedelta(days=30)) if v.pair < 20 else v for v in base.votes
    )
    made = assemble(replace(base, votes=old), recipe(half_life_days=30.0))
    weights = {line.pair: line.weight for line in made.lines["train"]}
    assert weights[0] / weights[39] == pytest.approx(0.5, abs=1e-5)


def test_rows_of_reliable_people_count_more_where_that_is_asked() -> None:
    """Persons 0 to 4 agree with each other; person 9 votes like a coin."""
    pairs, votes = [], []
    for n in range(200):
        pairs.append(pair(n, f"g{n:03}", f"x{n}", f"y{n}"))
        people = [0, 1, 2, 3, 9] if n % 2 else [0, 1, 2, 3, 4]
        for person in people:
            said_ = "b" if person == 9 and n % 4 == 1 else "a"
            votes.append(CurrentVote(10 * n + person, n, person, f"user:{person}", said_, NOON))
    made = assemble(Material(tuple(pairs), tuple(votes)), recipe(reliability_weights=True))
    weights = {line.pair: line.weight for line in made.lines["train"]}
    assert weights[0] > weights[1]


def graded(scale: int) -> Assembly:
    """Ana grades slightly and much; the other person the same, `scale` times as strongly."""
    pairs, votes = [], []
    for n in range(60):
        pairs.append(pair(n, f"g{n:02}", f"x{n}", f"y{n}"))
        grade = 1 + n % 2
        for k, times in enumerate((1, scale)):
            votes.append(
                CurrentVote(
                    10 * n + k,
                    n,
                    k,
                    f"user:{k}",
                    "a" if n % 3 else "b",
                    NOON,
                    strength=grade * times,
                )
            )
    two = SnapshotRecipe(
        least_votes=2, least_agreeing=2, heldout_annotators=0.0, splits={"train": 1.0}
    )
    return assemble(Material(tuple(pairs), tuple(votes)), two)


def test_a_rater_who_uses_twice_the_scale_is_equalised() -> None:
    alike, wide = graded(1).lines["train"], graded(2).lines["train"]
    assert all(line.strength > 0 for line in alike)  # towards the winner, whichever side that is
    for one, other in zip(alike, wide, strict=True):
        assert other.strength == pytest.approx(one.strength, rel=0.15)


def test_rows_without_grades_have_no_strength() -> None:
    assert {line.strength for line in assemble(lengths(5, 5), recipe()).lines["train"]} == {None}


def test_two_balances_are_evened_together() -> None:
    base = lengths(60, 40)
    topics = tuple(replace(p, topic="x" if p.id % 4 else "y") for p in base.pairs)
    made = assemble(replace(base, pairs=topics), recipe(balance=("length", "topic")))
    by = made.counts["weights"]["strata"]
    assert [v["weight"] for v in by["topic"].values()] == pytest.approx([50, 50], abs=0.01)
    assert [v["weight"] for v in by["length"].values()] == pytest.approx([50, 50], abs=0.01)
    assert len(even_weights([], 3)) == 3
