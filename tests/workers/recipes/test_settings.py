"""Configurations are checked whole, before anything heavy is loaded."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.config import PRESETS, SETTINGS, recipe_fields, settings_for
from workers.config.rewards import AGGREGATES
from workers.contract.events import RecipeError
from workers.layouts.shards import Shares
from workers.rewards import ensemble


def refused(kind: str, values: dict) -> str:
    with pytest.raises(RecipeError) as raised:
        settings_for(kind, values)
    assert raised.value.kind == "bad_config"
    return raised.value.message


def test_all_errors_are_told_at_once_with_the_field_of_each() -> None:
    message = refused(
        "ppo",
        {
            "lerning_rate": 1e-3,
            "clip": "wide",
            "gamma": 1.5,
            "kl_estimator": "k9",
            "steps": True,
            "reward": {"type": "token_count", "cap": 0},
        },
    )
    for part in (
        "lerning_rate: is no field of this recipe (is 'learning_rate' meant?)",
        "clip: expected float, got 'wide'",
        "gamma: 1.5 is over the greatest value 1.0",
        "kl_estimator: 'k9' is none of k1, k2, k3",
        "steps: expected int, got True",
        "reward.token: must be the word to count",
        "reward.cap: 0 is under the least value 1",
    ):
        assert part in message


def test_a_kl_coefficient_of_zero_must_be_forced() -> None:
    assert "kl_coef: 0" in refused("ppo", {"kl_coef": 0})
    assert settings_for("ppo", {"kl_coef": 0, "force_zero_kl": True}).kl_coef == 0.0


def test_batches_must_divide_evenly() -> None:
    assert "batch_size" in refused("ppo", {"batch_size": 10, "minibatch_size": 4})
    assert "minibatch_size" in refused("ppo", {"microbatch_size": 3})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_must_be_finite(value: float) -> None:
    assert "learning_rate:" in refused("sft", {"learning_rate": value})


def test_a_preset_is_a_starting_point_that_the_rest_overrides() -> None:
    settings = settings_for("ppo", {"preset": "demo", "kl_coef": 0.2})
    assert settings.kl_coef == 0.2
    assert settings.max_new_tokens == PRESETS["ppo"]["demo"]["max_new_tokens"]
    told = refused("ppo", {"preset": "huge"})
    assert "preset: 'huge'" in told


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, named in PRESETS.items() for name in named]
)
def test_every_preset_is_a_valid_configuration(kind: str, name: str) -> None:
    settings_for(kind, {"preset": name})


def test_the_defaults_of_ppo_are_those_the_field_has_settled_on() -> None:
    settings = settings_for("ppo", {})
    assert settings.learning_rate == 1e-5
    assert 64 <= settings.batch_size <= 128
    assert 16 <= settings.minibatch_size <= 32
    assert (settings.update_epochs, settings.clip, settings.value_coef) == (4, 0.2, 0.1)
    assert (settings.gae_lambda, settings.gamma, settings.kl_coef) == (0.95, 1.0, 0.05)
    assert (settings.update_kl_target, settings.kl_target) == (0.02, 6.0)


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_field_says_what_it_is_for(kind: str) -> None:
    for one in recipe_fields(kind):
        assert one.option.doc.endswith("."), one.name


def test_a_field_keeps_its_type_limits_and_choices() -> None:
    fields = {field.name: field for field in recipe_fields("ppo")}
    batch_size = fields["batch_size"]
    assert (batch_size.type, batch_size.option.minimum) == ("int", 2)
    assert fields["learning_rate"].option.above == 0.0
    assert fields["kl_estimator"].option.choices == ("k1", "k2", "k3", "full")
    assert fields["kl_horizon"].optional
    assert fields["reward"].type == "object"
    assert recipe_fields("nothing") == []


def test_the_ways_to_combine_an_ensemble_are_those_of_its_module() -> None:
    assert AGGREGATES == ensemble.AGGREGATES


def test_checking_a_configuration_loads_no_torch() -> None:
    code = (
        "import sys; from workers.config import settings_for; "
        "settings_for('ppo', {'preset': 'demo'}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# How the rows of a step are dealt to ranks: pure, without any process.


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12)


@settings(max_examples=40)
@given(
    LENGTHS,
    st.integers(2, 5),
    st.booleans(),
    st.none() | st.integers(16, 300),
    st.integers(1, 6),
)
def test_every_row_is_computed_once_by_some_rank_and_the_work_is_even(
    lengths: list[tuple[int, int]], world: int, even: bool, budget: int | None, at_least: int
) -> None:
    hands = [
        Shares(rank, world, even=even).parts(lengths, budget=budget, at_least=at_least)
        for rank in range(world)
    ]
    counted = [row for hand in hands for part in hand if part.counts for row in part.rows]
    assert sorted(counted) == list(range(len(lengths)))
    assert all(part.rows for hand in hands for part in hand)  # there is always something to compute
    assert all(hands)
    rows = [sum(len(part.rows) for part in hand if part.counts) for hand in hands]
    assert max(rows) - min(rows) <= 1
    if even:
        assert len({len(hand) for hand in hands}) == 1
        for part in (part for hand in hands for part in hand):
            longest = max(max(lengths[row]) for row in part.rows)
            padded = 2 * len(part.rows) * longest
            assert budget is None or len(part.rows) == 1 or padded <= budget


@settings(max_examples=40)
@given(LENGTHS, st.none() | st.integers(16, 300), st.integers(1, 6))
def test_a_rank_has_no_more_rows_at_once_than_one_process_would(
    lengths: list[tuple[int, int]], budget: int | None, at_least: int
) -> None:
    alone = Shares().parts(lengths, budget=budget, at_least=at_least)
    most = max(len(part.rows) for part in alone)
    for rank in range(2):
        hand = Shares(rank, 2).parts(lengths, budget=budget, at_least=at_least)
        assert max(len(part.rows) for part in hand) <= max(most, 1)


def test_ranks_take_turns_equally_often() -> None:
    assert [Shares(0, 3).rounds(count) for count in (1, 3, 4)] == [3, 3, 6]
    assert Shares().rounds(4) == 4
