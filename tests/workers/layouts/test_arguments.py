"""What the library's trainer is told about a layout."""

import json

import pytest

from workers.contract.jobs import ZERO2, ZERO3
from workers.layouts.arguments import deepspeed_config, weights_in_float32


@pytest.mark.parametrize("layout", [ZERO2, ZERO3])
@pytest.mark.parametrize("half", [True, False])
def test_a_policy_that_is_its_own_reference_is_not_rounded_by_deepspeed(
    layout: str, half: bool
) -> None:
    shipped = json.loads(deepspeed_config(layout).read_text())
    told = weights_in_float32({"bf16": half, "seed": 1, "deepspeed": shipped})
    assert not told["bf16"]  # or the library would have DeepSpeed round them all the same
    assert told["deepspeed"]["bf16"] == {"enabled": False}
    assert told["deepspeed"]["torch_autocast"]["enabled"] is half
    assert told["deepspeed"]["zero_optimization"] == shipped["zero_optimization"]
    assert told["seed"] == 1


def test_other_layouts_are_told_nothing_more() -> None:
    assert weights_in_float32({"bf16": True}) == {"bf16": True}
