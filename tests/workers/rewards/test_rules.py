"""Rules: what fires on what was planted, and what does not on what is clean."""

import pytest

from tests.workers.recipes.language import user
from workers.config.parsing import read
from workers.config.rewards import RuleSettings
from workers.contract.events import RecipeError
from workers.rewards import rules as expressions
from workers.rewards.rules import Rule, RulesReward
from workers.rewards.source import Scores


def rule(**fields: object) -> Rule:
    settings, errors = read(RuleSettings, {"name": "planted", **fields})
    assert not errors
    return Rule(settings)


def score(text: str, *rules: dict) -> Scores:
    settings = [read(RuleSettings, entry)[0] for entry in rules]
    return RulesReward(settings).score([user("why?")], [text])


@pytest.mark.parametrize(
    ("fields", "kept", "broken"),
    [
        ({"lacks": ["as an AI"]}, ["Ask an AI tool.", "as an AIM"], ["As  an\nAI, I …"]),
        # the same letters in another width, or with something that takes no room between them
        (
            {"lacks": ["password"]},
            ["passwords"],
            ["ｐａｓｓｗｏｒｄ", "pass\u200bword", "Pass\u00adword"],
        ),
        ({"lacks": ["No"], "ignore_case": False}, ["no"], ["No."]),
        ({"contains": ["please", "thank you"]}, ["Please! Thank you."], ["please", ""]),
        ({"contains_any": ["yes", "no"]}, ["No.", "yes and no"], ["maybe", "know"]),
        ({"matches": r"^Step \d"}, ["Step 1"], ["step 1", "First, Step 1"]),
        ({"matches": r"^step \d", "ignore_case": True}, ["STEP 1"], ["first step"]),
        ({"matches_not": r"\d{3}-\d{4}"}, ["call me"], ["call 555-1234"]),
        ({"words": {"least": 2, "most": 3}}, ["a b", "a b c"], ["a", "a b c d", ""]),
        ({"characters": {"most": 3}}, ["abc", ""], ["abcd"]),
        ({"format": "json"}, ['{"a": [1]}', "```json\n[]\n```", " 3 "], ["{a: 1}", "NaN", "x []"]),
        ({"format": "json"}, ['"' + "a" * 9 + '"'], ["[" * 100_000]),
        (
            {"format": "boxed"},
            [r"so \boxed{42}", r"\boxed{\frac{1}{2}}"],
            ["42", r"\boxed{1} or \boxed{2}", r"\boxed{}", r"\boxed{4"],
        ),
        (
            {"format": "sections", "sections": ["Reasons", "Answer"]},
            ["## Reasons\nmany\n**Answer:**\nyes", "reasons\nanswer"],
            ["Answer\nReasons", "Reasons: many\nAnswer", "Reasons"],
        ),
    ],
)
def test_a_rule_is_broken_by_what_breaks_it_and_kept_by_the_rest(
    fields: dict, kept: list[str], broken: list[str]
) -> None:
    planted = rule(**fields)
    assert {text: planted.broken(text) for text in kept} == dict.fromkeys(kept)
    assert [text for text in broken if planted.broken(text) is None] == []


def test_how_a_rule_is_broken_is_said_in_words() -> None:
    assert rule(lacks=["cat", "dog"]).broken("A dog.") == "says “dog”"
    assert rule(words={"most": 1}).broken("a b") == "has 2 words, over 1"
    assert rule(format="boxed").broken("") == "holds 0 boxed answers, not one"


def test_rules_earn_and_cost_what_they_say_and_each_stands_in_the_parts() -> None:
    rules = (
        {"name": "boxed", "format": "boxed", "score": 2.0, "penalty": 0.5},
        {"name": "brief", "words": {"most": 3}},  # costs 1 unless told
    )
    assert score(r"\boxed{1}", *rules).values == [2.0]
    found = score("one two three four", *rules)
    assert (found.values, found.parts) == ([-1.5], {"boxed": [-0.5], "brief": [-1.0]})
    assert (found.blocked, found.withheld, found.reviews) == ([False], [False], [None])


def test_a_hard_constraint_blocks_goes_to_people_and_withholds_unless_it_has_a_penalty() -> None:
    hard = {"name": "no_phone", "matches_not": r"\d{3}-\d{4}", "on_violation": "block"}
    found = score("call 555-1234", hard)
    assert (found.values, found.blocked, found.withheld) == ([0.0], [True], [True])
    assert found.reviews == ["rule no_phone: the answer matches the expression with “555-1234”"]
    priced = score("call 555-1234", hard | {"penalty": 3.0})
    assert (priced.values, priced.blocked, priced.withheld) == ([-3.0], [True], [False])
    clean = score("call me", hard)
    assert (clean.blocked, clean.withheld, clean.reviews) == ([False], [False], [None])


def test_a_rule_for_people_asks_them_and_blocks_nothing() -> None:
    found = score("sue them", {"name": "law", "lacks": ["sue"], "on_violation": "review"})
    assert found.reviews == ["rule law: the answer says “sue”"]
    assert (found.values, found.blocked) == ([0.0], [False])


def test_an_expression_that_takes_for_ever_stops_the_run_and_names_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take longer than the universe has lasted."""
    monkeypatch.setattr(expressions, "SECONDS", 0.1)
    with pytest.raises(RecipeError) as raised:
        score("a" * 400 + "!", {"name": "slow", "matches": r"^(a|aa)+$"})
    assert raised.value.kind == "slow_expression"
    assert raised.value.message.startswith("reward.rules[0].matches: took over")
