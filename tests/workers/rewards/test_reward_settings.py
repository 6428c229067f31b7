"""The `reward` of a configuration: all its errors at once, each with its path."""

import subprocess
import sys

import pytest

from workers.config.parsing import setting_fields
from workers.config.rewards import (
    SOURCES,
    Bounds,
    PartSettings,
    RuleSettings,
    VerifierSettings,
    needs_model,
    read_reward,
    reward_errors,
)
from workers.contract.events import RecipeError


def test_every_error_is_told_at_once_with_the_path_of_its_field() -> None:
    config = {
        "type": "sum",
        "parts": [
            {"name": "a b", "source": {"type": "model", "agregate": "mean", "lambda": -1}},
            {
                "name": "x",
                "weight": "heavy",
                "source": {"type": "http", "url": "ftp://x", "retries": 99, "token_env": "PATH"},
            },
            {"name": "x", "source": {"type": "rules", "rules": [{"name": "r"}, {"name": "r"}]}},
            {"name": "y", "source": {"type": "verifier", "check": "numbre"}},
            {"name": "z", "source": {"type": "poetry"}},
        ],
        "wieght": 1,
    }
    assert sorted(reward_errors(config)) == sorted(
        [
            "reward.wieght: is no field of the source sum",
            "reward.parts[0].name: 'a b' must be 1 to 40 letters, digits, - and _",
            "reward.parts[0].source.agregate: is no field of the source model"
            " (is 'aggregate' meant?)",
            "reward.parts[0].source.lambda: -1.0 is under the least value 0.0",
            "reward.parts[1].weight: expected float, got 'heavy'",
            "reward.parts[1].source.url: must begin with https:// (or http://) and name a host",
            "reward.parts[1].source.retries: 99 is over the greatest value 20",
            "reward.parts[1].source.token_env: must be REWARD_TOKEN or begin with REWARD_TOKEN_",
            "reward.parts[2].name: 'x' is the name of another one",
            *[
                f"reward.parts[2].source.rules[{i}].needs exactly one test of contains, "
                "contains_any, lacks, matches, matches_not, words, characters, format "
                "(given: none)"
                for i in (0, 1)
            ],
            "reward.parts[2].source.rules[1].name: 'r' is the name of another one",
            "reward.parts[3].source.check: 'numbre' is none of exact, number, pattern, order, "
            "shape",
            "reward.parts[4].source.type: 'poetry' is none of model, token_count, rules, "
            "verifier, http, sum",
        ]
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "reward.type: None is none of"),
        ({"type": ["model"]}, "reward.type: ['model'] is none of"),
        ({"type": "rules"}, "reward.rules: must hold at least one rule"),
        ({"type": "rules", "rules": [3]}, "reward.rules: expected an object, got 3"),
        ({"type": "sum", "parts": {}}, "reward.parts: expected a list, got {}"),
        ({"type": "sum", "parts": [{"name": "a"}]}, "reward.parts[0].source.type: None is none"),
        ({"type": "token_count", "token": ""}, "reward.token: must be the word to count"),
        ({"type": "token_count", "token": "a", "cap": 0}, "reward.cap: 0 is under the least"),
        ({"type": "verifier", "take": "match"}, "reward.pattern: is needed to take a match"),
        ({"type": "verifier", "check": "shape"}, "reward.shape: is needed to check a shape"),
        (
            {"type": "verifier", "check": "shape", "shape": {"properties": {"a": {"tipe": "x"}}}},
            "reward.shape.properties.a.tipe: is not understood",
        ),
        (
            {"type": "verifier", "check": "shape", "shape": {"items": {"type": "text"}}},
            "reward.shape.items.type: 'text' is none of object",
        ),
        ({"type": "http"}, "reward.url: must begin with https://"),
        ({"type": "http", "url": "https://a:b@c/"}, "reward.url: must hold no password"),
        (
            {"type": "http", "url": "http://c/", "token_env": "REWARD_TOKEN"},
            "reward.url: a token goes over https only",
        ),
        (
            {"type": "http", "url": "https://c/", "token_env": "AWS_SECRET_ACCESS_KEY"},
            "reward.token_env: must be REWARD_TOKEN",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(config: dict, told: str) -> None:
    errors = reward_errors(config)
    assert [error for error in errors if error.startswith(told)], errors
    with pytest.raises(RecipeError) as raised:
        read_reward(config)
    assert raised.value.kind == "bad_config"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"lacks": ["a"], "words": {"most": 1}}, "needs exactly one test"),
        ({"lacks": ["a", " "]}, "lacks[1]: must not be empty"),
        ({"lacks": "a"}, "lacks: expected a list, got 'a'"),
        ({"matches": "(a"}, "matches: is no regular expression"),
        ({"words": {}}, "words.least or most must be given"),
        ({"words": {"least": 3, "most": 2}}, "words.least: 3 is over most, 2"),
        ({"characters": {"mots": 3}}, "characters.mots: is no field of a length"),
        ({"format": "sections"}, "sections: belongs to the format sections"),
        ({"format": "json", "sections": ["A"]}, "sections: belongs to the format sections"),
        ({"format": "xml"}, "format: 'xml' is none of json, boxed, sections"),
        ({"lacks": ["a"], "on_violation": "shout"}, "on_violation: 'shout' is none of"),
        ({"lacks": ["a"], "penalty": -1}, "penalty: -1.0 is under the least value 0.0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict, told: str) -> None:
    errors = reward_errors({"type": "rules", "rules": [{"name": "r"} | rule]})
    assert [error for error in errors if error.startswith(f"reward.rules[0].{told}")], errors


def test_sums_are_not_nested_for_ever() -> None:
    config: dict = {"type": "token_count", "token": "good"}
    for _ in range(5):
        config = {"type": "sum", "parts": [{"name": "a", "source": config}]}
    assert "is nested too deep" in "".join(reward_errors(config))
    assert reward_errors(config["parts"][0]["source"]["parts"][0]["source"]) == []


def test_whether_a_model_is_needed_is_seen_through_sums() -> None:
    rules = {"type": "rules", "rules": [{"name": "r", "lacks": ["a"]}]}
    both = {"type": "sum", "parts": [{"name": "a", "source": {"type": "model"}}]}
    assert needs_model({"type": "model"})
    assert needs_model({"type": "sum", "parts": [{"name": "b", "source": both}]})
    assert not needs_model({"type": "sum", "parts": [{"name": "b", "source": rules}]})


@pytest.mark.parametrize(
    "cls", [*SOURCES.values(), PartSettings, RuleSettings, Bounds, VerifierSettings]
)
def test_every_field_says_what_it_is_for(cls: type) -> None:
    for one in setting_fields(cls):
        assert one.option.doc.endswith("."), one.name


def test_checking_a_reward_loads_no_torch() -> None:
    code = (
        "import sys; from workers.config.rewards import reward_errors; "
        "reward_errors({'type': 'model'}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
