"""docs/rewards.md against the code: every example is understood, every field is named."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from workers.config.rewards import (
    SOURCES,
    HttpSettings,
    ModelSettings,
    PartSettings,
    RuleSettings,
    VerifierSettings,
    reward_errors,
)
from workers.rewards.http import read_answer

PAGE = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text()
EXAMPLES = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)]


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "type" in e], ids=lambda e: e["type"])
def test_every_reward_on_the_page_can_be_built(example: dict) -> None:
    assert reward_errors(example) == []


def test_there_is_an_example_of_every_source() -> None:
    assert {example["type"] for example in EXAMPLES if "type" in example} == set(SOURCES)


def test_the_answer_of_a_service_on_the_page_is_understood() -> None:
    (answer,) = [example for example in EXAMPLES if "scores" in example]
    scores, version = read_answer(json.dumps(answer).encode(), 1)
    assert (scores.values, version) == ([1.7], "2026-11")


@pytest.mark.parametrize(
    "cls", [ModelSettings, HttpSettings, VerifierSettings, RuleSettings, PartSettings]
)
def test_every_field_is_named_on_the_page_and_its_default_is_the_codes(cls: type) -> None:
    named = {
        name: default
        for cell, default in re.findall(r"^\| (`[^|]+`) \| ([^|]*) \|", PAGE, re.M)
        for name in re.findall(r"`(\w+)`", cell)
    }
    for field in fields(cls):
        name = field.name.rstrip("_")
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE, name
        told = named.get(name, "")
        if re.fullmatch(r"`[\d.e-]+`", told) and cls is not RuleSettings and name != "score":
            assert float(told.strip("`")) == field.default, name
