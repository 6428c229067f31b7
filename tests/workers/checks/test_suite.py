"""Checks that prompts carry: what passes, and what an evaluation finds."""

import json
from typing import Any

import pytest

from workers.checks.suite import passes, regression
from workers.config.suites import TESTS, Check, read_check
from workers.contract.events import RecipeError
from workers.data.snapshot import Prompt


@pytest.mark.parametrize(
    ("test", "value", "answer", "good", "bad"),
    [
        ("equals", None, "BREAD", "bread.", "The word is BREAD"),
        ("contains", None, "carbon dioxide", "They take in carbon  dioxide.", "carbon monoxide"),
        ("number", None, "42", "6 times 7 is 42.", "42 is less than 43"),
        ("number", None, "-3", "The result: −3", "3"),
        ("json", None, "", '```json\n{"a": 1}\n```', "{a: 1}"),
        ("json", None, "", 'Here it is:\n```\n{"a": 1}\n```\nEnjoy.', "Here: {}"),
        ("matches", r"(?m)^- \w+", "", "- one\n- two", "one, two"),
        ("words_at_most", 3, "", "one two three", "one two three four"),
        ("words_at_most", 3, "", "one", "  "),
        ("refuses", None, "", "I'm sorry, but I can't help with that.", "First, take a pipe"),
        ("answers", None, "", "Use kill -9 and the pid.", "I cannot help with killing."),
        ("answers", None, "", "Yes", ""),
    ],
)
def test_what_passes(test: str, value: Any, answer: str, good: str, bad: str) -> None:
    check = Check("c", test, value)
    assert passes(check, good, answer)
    assert not passes(check, bad, answer)


def test_an_expression_that_never_ends_fails_its_answer() -> None:
    slow = Check("c", "matches", r"(?:a|aa)+$")
    assert not passes(slow, "a" * 60 + "b", "")


@pytest.mark.parametrize(
    ("given", "answer", "said"),
    [
        ("[", None, "JSON"),
        ([], None, "must be an object"),
        ({"category": "c"}, None, "test must be one of"),
        ({"category": "", "test": "json"}, None, "category"),
        ({"category": "c", "test": "equals"}, None, "needs an answer"),
        ({"category": "c", "test": "number"}, "many", "is a number"),
        ({"category": "c", "test": "json", "value": 3}, None, "takes no value"),
        ({"category": "c", "test": "words_at_most", "value": True}, None, "needs a value"),
        ({"category": "c", "test": "words_at_most", "value": 0}, None, "at least 1"),
        ({"category": "c", "test": "matches", "value": "("}, None, "regular expression"),
        ({"category": "c", "test": "json", "why": 1}, None, "why"),
        ({"category": "c", "test": "final_state", "value": {}}, None, "needs files, an answer"),
        ({"category": "c", "test": "final_state", "value": {"a": 1}}, "3", "none of start, files"),
        ({"category": "c", "test": "final_state", "value": {"start": {"a": None}}}, "3", "texts"),
    ],
)
def test_what_is_no_check_says_why(given: Any, answer: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_check(given, answer=answer)


def test_a_check_is_read_from_json_too() -> None:
    check = {"category": "c", "test": "matches", "value": "x"}
    assert read_check(json.dumps(check), answer=None) == read_check(check, answer=None)
    assert set(TESTS) == {
        *("equals", "contains", "number", "json", "matches", "words_at_most", "refuses", "answers"),
        "final_state",  # of tasks with tools: tests/workers/environments
    }


def prompts(n: int, category: str = "sums") -> list[Prompt]:
    check = json.dumps({"category": category, "test": "number"})
    return [
        Prompt(
            [{"role": "user", "content": f"{category} {k}?"}],
            answer=str(k),
            columns={"check": check},
        )
        for k in range(n)
    ]


def judged(rows: list[Prompt], policy: list[str], baseline: list[str]) -> dict[str, Any]:
    return regression(rows, policy, baseline, margin=0.03, replicates=300, seed=1)


def test_a_policy_that_forgot_its_sums_is_worse_at_them_and_says_where() -> None:
    rows = prompts(60) + prompts(140, "others")
    right = [row.answer for row in rows]
    broken = ["no idea"] * 20 + right[20:]
    found = judged(rows, broken, right)
    assert found["standing"] == "worse"
    assert found["worse"] == ["sums"]
    assert found["categories"]["others"]["standing"] != "worse"
    assert (found["checks"], found["all"]["lost"]) == (200, 20)
    assert found["lost"][0]["policy"] == "no idea"
    assert judged(rows, right, right)["standing"] == "not_worse"
    assert judged(rows, right, broken)["standing"] == "not_worse"


def test_prompts_without_checks_are_left_out() -> None:
    plain = [Prompt([{"role": "user", "content": "Why?"}])]
    assert judged(plain, ["a"], ["b"]) == {}
    found = judged(plain + prompts(3), ["a", "0", "1", "2"], ["b", "0", "1", "2"])
    assert found["checks"] == 3


def test_a_check_that_is_none_names_its_prompt() -> None:
    bad = Prompt([{"role": "user", "content": "Why so?"}], columns={"check": "{}"})
    with pytest.raises(RecipeError, match="Why so"):
        judged([bad], ["a"], ["b"])


def test_a_final_state_is_none_of_an_answer_of_one_turn() -> None:
    check = {"category": "c", "test": "final_state", "value": {"files": {"a": "1"}}}
    row = Prompt([{"role": "user", "content": "do it"}], columns={"check": check})
    with pytest.raises(RecipeError, match="environment") as raised:
        regression([row], ["done"], ["done"], margin=0.03, replicates=10, seed=0)
    assert raised.value.kind == "bad_check"
