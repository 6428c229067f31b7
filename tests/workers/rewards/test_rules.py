"""Rules: what fires on what was planted, and what does not on what is clean."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from tests.workers.recipes.language import user
from workers.config.parsing import read
from workers.config.rewards import RuleSettings, VerifierSettings
from workers.contract.events import RecipeError
from workers.data.snapshot import Prompt, read_prompts
from workers.rewards import rules as expressions
from workers.rewards.rules import Rule, RulesReward, boxed, numbers
from workers.rewards.source import Part as SumPart
from workers.rewards.source import Scores, WeightedSum, verifier_metrics
from workers.rewards.verifier import Verifier


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
    assert "0 boxed answers" in rule(format="boxed").broken("")


def test_rules_earn_and_cost_what_they_say_and_each_stands_in_the_parts() -> None:
    rules = (
        {"name": "boxed", "format": "boxed", "score": 2.0, "penalty": 0.5},
        {"name": "brief", "words": {"most": 3}},  # costs 1 unless told
    )
    assert score(r"\boxed{1}", *rules).values == [2.0]
    found = score("one two three four", *rules)
    parts = {"boxed": [-0.5], "brief": [-1.0], "formed": [0.0]}
    assert (found.values, found.parts) == ([-1.5], parts)
    assert (found.blocked, found.withheld, found.reviews) == ([False], [False], [None])


def test_a_hard_constraint_blocks_goes_to_people_and_withholds_unless_it_has_a_penalty() -> None:
    hard = {"name": "no_phone", "matches_not": r"\d{3}-\d{4}", "on_violation": "block"}
    found = score("call 555-1234", hard)
    assert (found.values, found.blocked, found.withheld) == ([0.0], [True], [True])
    assert "no_phone" in found.reviews[0]
    assert "555-1234" in found.reviews[0]
    priced = score("call 555-1234", hard | {"penalty": 3.0})
    assert (priced.values, priced.blocked, priced.withheld) == ([-3.0], [True], [False])
    clean = score("call me", hard)
    assert (clean.blocked, clean.withheld, clean.reviews) == ([False], [False], [None])


def test_a_rule_for_people_asks_them_and_blocks_nothing() -> None:
    found = score("sue them", {"name": "law", "lacks": ["sue"], "on_violation": "review"})
    assert ["rule law:" in review for review in found.reviews] == [True]
    assert (found.values, found.blocked) == ([0.0], [False])


def test_an_expression_that_takes_for_ever_stops_the_run_and_names_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take longer than the universe has lasted."""
    monkeypatch.setattr(expressions, "SECONDS", 0.1)
    with pytest.raises(RecipeError) as raised:
        score("a" * 400 + "!", {"name": "slow", "matches": r"^(a|aa)+$"})
    assert raised.value.kind == "slow_expression"
    assert raised.value.message.startswith("reward.rules[0].matches:")


# Verifiable rewards against answers that rows carry.


def verifier(answer: str = "", **fields: object) -> Verifier:
    settings, errors = read(VerifierSettings, fields)
    assert not errors
    return Verifier(settings, [Prompt(user("why?"), answer=answer)] if answer else [])


def values(source: Verifier, *texts: str) -> list[float]:
    return source.score([user("why?")] * len(texts), list(texts)).values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234 apples", [1234]),
        ("-5 and \u22125", [-5, -5]),
        ("$3.50", ["3.5"]),
        ("1/4 of 20 %", ["1/4", 20]),
        (r"\frac{3}{4}", ["3/4"]),
        ("1e3", [1000]),
        (".5", ["1/2"]),
        ("a1 v2.0x 7", [7]),  # names are no numbers
        ("1/0", []),
        ("12,34", []),
        ("is 42.", [42]),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, expected: list) -> None:
    assert numbers(text) == [Fraction(value) for value in expected]


def test_boxes_are_read_with_their_braces_counted() -> None:
    assert boxed(r"a \boxed{x_{1}} b \boxed { {2} } \boxed{open") == ["x_{1}", "{2}"]


@pytest.mark.parametrize(
    ("fields", "answer", "right", "wrong"),
    [
        ({"check": "exact"}, "Paris", ["paris.", " PARIS\n"], ["in Paris", "Par is"]),
        ({"check": "exact", "take": "last_line"}, "b", ["a\nB\n\n"], ["b\na"]),
        ({"check": "exact", "take": "after"}, "b", ["Answer: a\nAnswer: b\nso"], ["Answer: a b"]),
        (
            {"check": "number", "take": "boxed"},
            "1/2",
            [r"\boxed{0.5}", r"\boxed{1} \boxed{\frac{1}{2}}"],
            [r"\boxed{5}"],
        ),
        ({"check": "number"}, "42", ["6·7 is 42", "42.0"], ["42 or 43", "4 2", "-42"]),
        ({"check": "number", "tolerance": 0.5}, "10", ["10.5"], ["10.51"]),
        ({"check": "number", "relative_tolerance": 0.1}, "-100", ["-90", "-110"], ["-89", "100"]),
        ({"check": "pattern"}, r"(4|four) cats?", ["four cats", " 4 cat "], ["four cats ran"]),
        (
            {"check": "exact", "take": "match", "pattern": r"<a>(.*?)</a>"},
            "b",
            ["<a>x</a><a>b</a>"],
            ["<a>bb</a>"],
        ),
        ({"check": "order"}, '["egg", "hen"]', ["An egg, then a hen"], ["hen, egg", "egg"]),
        ({"check": "order"}, "red > green > blue", ["red\ngreen\nblue"], ["red blue green"]),
        (
            {
                "check": "shape",
                "shape": {
                    "type": "object",
                    "required": ["n"],
                    "additionalProperties": False,
                    "properties": {
                        "n": {"type": "integer", "minimum": 1},
                        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
                    },
                },
            },
            "",
            ['{"n": 1}', '{"n": 2.0, "tags": ["a", "b"]}', '```json\n{"n": 1}\n```'],
            ['{"n": 0}', '{"n": true}', '{"n": 1, "x": 1}', '{"n": 1, "tags": ["c"]}', "[]"],
        ),
    ],
)
def test_right_answers_earn_one_and_wrong_ones_nothing(
    fields: dict, answer: str, right: list[str], wrong: list[str]
) -> None:
    source = verifier(answer, **fields)
    assert values(source, *right) == [1.0] * len(right)
    assert values(source, *wrong) == [0.0] * len(wrong)


def test_a_response_without_an_answer_is_told_from_a_wrong_one() -> None:
    source = verifier("4", check="number", take="boxed", score=2, wrong=-0.5, missing=-1)
    found = source.score([user("why?")] * 3, [r"\boxed{4}", r"\boxed{5}", "4"])
    assert found.values == [2.0, -0.5, -1.0]
    assert found.parts["correct"] == [1.0, 0.0, 0.0]


def test_an_order_may_be_right_in_part() -> None:
    """Of the pairs ab, ac, bc: b a c has two right, a c has one, as b's place is unknown."""
    source = verifier("a, b, c", check="order", partial=True)
    assert values(source, "b a c", "a c", "a b c") == pytest.approx([2 / 3, 1 / 3, 1.0])
    assert source.score([user("why?")], ["b a c"]).parts["correct"] == [0.0]


def test_each_prompt_is_held_to_its_own_answer() -> None:
    settings, _ = read(VerifierSettings, {"check": "number"})
    source = Verifier(settings, [Prompt(user("2+2"), answer="4"), Prompt(user("2+3"), answer="5")])
    assert source.score([user("2+3"), user("2+2")], ["5", "5"]).values == [1.0, 0.0]
    with pytest.raises(RecipeError, match="knows no answer"):
        source.score([user("2+4")], ["6"])


def test_prompts_without_answers_are_counted_and_refused_unless_they_may_go_without() -> None:
    prompts = [Prompt(user("2+2"), answer="4"), Prompt(user("write a poem"))]
    with pytest.raises(RecipeError, match=r"1 of 2 .* 'answer'") as raised:
        Verifier(VerifierSettings(), prompts)
    assert raised.value.kind == "no_answer"
    lenient = VerifierSettings(without_answer="zero", score=3.0, wrong=-1.0, on_wrong="block")
    found = Verifier(lenient, prompts).score([p.messages for p in prompts], ["5", "roses"])
    assert found.values == [-1.0, 0.0]
    assert found.blocked == [True, False]
    with pytest.raises(RecipeError, match="1 of 1"):
        Verifier(lenient, prompts[1:])


@pytest.mark.parametrize(
    ("check", "answer"),
    [("number", "4 or 5"), ("pattern", "(4"), ("order", "one"), ("order", "a,a")],
)
def test_an_answer_that_cannot_be_checked_stops_the_run_before_it_begins(
    check: str, answer: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        verifier(answer, check=check)
    assert raised.value.kind == "bad_answer"
    assert repr(answer) in raised.value.message


def test_a_snapshot_row_may_carry_its_answer_as_text_number_or_list(tmp_path: Path) -> None:
    rows = [
        {"prompt": user("a"), "answer": " 4 "},
        {"prompt": user("b"), "answer": 4.5},
        {"prompt": user("c"), "answer": ["x", "y"]},
        {"prompt": user("d"), "answer": None},
        {"prompt": user("e")},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [p.answer for p in read_prompts(tmp_path)] == ["4", "4.5", '["x", "y"]', "", ""]
    path.write_text("".join(json.dumps(rows[0] | {"answer": a}) + "\n" for a in ("4", "5")))
    with pytest.raises(RecipeError, match="line 2:"):
        read_prompts(tmp_path)


def test_shares_of_right_and_formed_answers_are_known_of_the_whole_reward() -> None:
    right = verifier("4", check="number", take="boxed")
    style = RulesReward([read(RuleSettings, {"name": "one_box", "format": "boxed"})[0]])
    whole = WeightedSum([SumPart("right", 1.0, right), SumPart("style", 0.2, style)])
    texts = [r"\boxed{4}", r"\boxed{5}", r"\boxed{3} or \boxed{4}", "four"]
    found = verifier_metrics(whole.score([user("why?")] * 4, texts))
    assert found == {"verifier/correct_share": 0.5, "verifier/form_share": 0.5}
    alone = verifier_metrics(right.score([user("why?")] * 4, texts))
    assert alone == {"verifier/correct_share": 0.5, "verifier/form_share": 0.75}
    assert verifier_metrics(Scores([0.0], {"brief": [0.0]})) == {}
