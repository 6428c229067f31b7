"""The check that a prompt carries: of a regression suite, or of a task with tools. No torch.

`{"category": "arithmetic", "test": "number"}`: what an answer has to be, decided without a model.
`{"category": "notes", "test": "final_state", "value": {"start": {…}, "files": {…}}}`: what a world
begins with, and what it must look like once the policy has acted in it (docs/grpo.md).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.config.rewards import FINAL_STATE, expression_error

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
    FINAL_STATE: (False, dict, "an object with start and files, of texts by name"),
}
_FIELDS = ("category", "test", "value")
_LONGEST_CATEGORY = 60


@dataclass(frozen=True, slots=True)
class Check:
    category: str
    test: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class State:
    """Files by name: those at the start, and what becomes of some of them (None: it must be gone).
    A file that `files` does not name must be as it was."""

    start: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str | None] = field(default_factory=dict)

    def wanted(self) -> dict[str, str]:
        """All files of the end."""
        changed = {**self.start, **self.files}
        return {name: text for name, text in changed.items() if text is not None}


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
    if test == FINAL_STATE:
        value = _state(value, answer)
    return Check(category.strip(), test, value)


def _state(value: Mapping[str, Any], answer: Any) -> State:
    if unknown := sorted(set(value) - {"start", "files"}):
        raise ValueError(f"value has {unknown[0]!r}, which is none of start, files")
    for part, may_go in (("start", False), ("files", True)):
        files = value.get(part, {})
        if not isinstance(files, Mapping) or not all(
            isinstance(text, str) or (text is None and may_go) for text in files.values()
        ):
            ending = ", or null for one that must be gone" if may_go else ""
            raise ValueError(f"value.{part} must be texts by name{ending}")
    if not value.get("files") and (answer is None or str(answer).strip() == ""):
        raise ValueError(f"the test {FINAL_STATE} needs files, an answer or both")
    return State(dict(value.get("start", {})), dict(value.get("files", {})))


def _number(answer: Any) -> None:
    try:
        float(answer)
    except (TypeError, ValueError):
        raise ValueError("the test number needs an answer that is a number") from None
