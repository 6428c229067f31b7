"""The check that a prompt of a regression suite carries, as data. No torch.

`{"category": "arithmetic", "test": "number"}`: what an answer has to be, decided without a model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.config.rewards import expression_error

# test: (whether it compares with the row's `answer`, the type of its `value`, what passes)
TESTS: dict[str, tuple[bool, type | None, str]] = {
    "equals": (True, None, "the answer's text, but for case, widths, space and a last full stop"),
    "contains": (True, None, "the answer stands in it as whole words"),
    "number": (True, None, "the last number in it is the answer"),
    "json": (False, None, "it is JSON, or has one block of it"),
    "matches": (False, str, "the regular expression `value` is found in it"),
    "words_at_most": (False, int, "it has at most `value` words, and at least one"),
    "refuses": (False, None, "it has a phrase of refusal"),
    "answers": (False, None, "it says something and has no phrase of refusal"),
}
_FIELDS = ("category", "test", "value")
_LONGEST_CATEGORY = 60


@dataclass(frozen=True, slots=True)
class Check:
    category: str
    test: str
    value: Any = None


def read_check(given: Any, *, answer: Any) -> Check:
    """given: an object, or its JSON. Raises `ValueError` that says what is wrong with it."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise ValueError("must be an object, or JSON of one") from None
    if not isinstance(given, Mapping):
        raise ValueError("must be an object with category and test")
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(_FIELDS)}")
    category, test = given.get("category"), given.get("test")
    if not isinstance(category, str) or not 1 <= len(category.strip()) <= _LONGEST_CATEGORY:
        raise ValueError(f"category must be a text of 1 to {_LONGEST_CATEGORY} characters")
    if test not in TESTS:
        raise ValueError(f"test must be one of {', '.join(TESTS)}")
    compares, kind, _ = TESTS[test]
    if compares and (answer is None or str(answer).strip() == ""):
        raise ValueError(f"the test {test} needs an answer")
    if test == "number":
        _number(answer)
    value: Any = given.get("value")
    if kind is None and value is not None:
        raise ValueError(f"the test {test} takes no value")
    if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ValueError(f"the test {test} needs a value: {TESTS[test][2]}")
    if test == "words_at_most" and value < 1:
        raise ValueError("value must be at least 1")
    if test == "matches" and (told := expression_error(value)):
        raise ValueError(f"value {told}")
    return Check(category.strip(), test, value)


def _number(answer: Any) -> None:
    try:
        float(answer)
    except (TypeError, ValueError):
        raise ValueError("the test number needs an answer that is a number") from None
