"""How rules and verifiers are written in a configuration. No torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import regex

from workers.config.parsing import option, read

PENALISE, BLOCK, REVIEW = "penalise", "block", "review"
TESTS = (
    *("contains", "contains_any", "lacks", "matches", "matches_not"),
    *("words", "characters", "format"),
)
FORMATS = ("json", "boxed", "sections")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def name_error(name: str) -> list[str]:
    """Names become parts of metric names."""
    if NAME.fullmatch(name):
        return []
    return [f"name: {name!r} must be 1 to 40 letters, digits, - and _"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Both ends inclusive; one may be left open."""

    least: int | None = option(None, "The fewest allowed.", minimum=0)
    most: int | None = option(None, "The most allowed.", minimum=0)

    def check(self) -> list[str]:
        if self.least is None and self.most is None:
            return ["least or most must be given"]
        if self.least is not None and self.most is not None and self.least > self.most:
            return [f"least: {self.least} is over most, {self.most}"]
        return []


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """One rule: a name, one test, and what it earns or costs."""

    name: str = option("", "What the rule is called in metrics, logs and reviews.")
    contains: tuple[str, ...] = option((), "Phrases of which every one must occur.")
    contains_any: tuple[str, ...] = option((), "Phrases of which one must occur.")
    lacks: tuple[str, ...] = option((), "Phrases of which none may occur.")
    matches: str = option("", "A regular expression that must match somewhere.")
    matches_not: str = option("", "A regular expression that may match nowhere.")
    words: Mapping[str, Any] | None = option(None, "Length bounds: {least, most}.", unit="words")
    characters: Mapping[str, Any] | None = option(
        None, "Length bounds: {least, most}.", unit="characters"
    )
    format: str | None = option(
        None,
        "json: the response is JSON, alone or in one code fence; boxed: it holds one \\boxed{…} "
        "that is not empty; sections: the headings of `sections` stand in it in that order.",
        choices=FORMATS,
    )
    sections: tuple[str, ...] = option((), "Headings of the format sections, each on its own line.")
    ignore_case: bool | None = option(
        None, "Unless set, phrases and headings ignore case and expressions heed it."
    )
    score: float = option(0.0, "Earned by a response that keeps the rule.", unit="score")
    penalty: float | None = option(
        None,
        "Taken from a response that breaks it; 1 unless set where on_violation is penalise, and "
        "none elsewhere.",
        unit="score",
        minimum=0.0,
    )
    on_violation: str = option(
        PENALISE,
        "penalise: the penalty is all; block: the response teaches nothing (with a penalty: only "
        "the penalty) and is kept out of what is generated; review: people see it.",
        choices=(PENALISE, BLOCK, REVIEW),
    )

    @property
    def test(self) -> str:
        """The name of the one test that is set."""
        return next(name for name in TESTS if getattr(self, name))

    @property
    def cost(self) -> float:
        if self.penalty is not None:
            return self.penalty
        return 1.0 if self.on_violation == PENALISE else 0.0

    @property
    def withholds(self) -> bool:
        """Whether a response that breaks the rule must give no gradient."""
        return self.on_violation == BLOCK and not self.penalty

    def check(self) -> list[str]:
        errors = name_error(self.name)
        given = [name for name in TESTS if getattr(self, name)]
        if len(given) != 1:
            told = ", ".join(given) or "none"
            errors.append(f"needs exactly one test of {', '.join(TESTS)} (given: {told})")
        for name in ("contains", "contains_any", "lacks", "sections"):
            errors += [
                f"{name}[{i}]: must not be empty"
                for i, phrase in enumerate(getattr(self, name))
                if not phrase.strip()
            ]
        errors += [
            f"{name}: {told}"
            for name in ("matches", "matches_not")
            if getattr(self, name) and (told := expression_error(getattr(self, name)))
        ]
        for name in ("words", "characters"):
            if getattr(self, name) is not None:
                errors += read(Bounds, getattr(self, name), where=f"{name}.", what="a length")[1]
        if (self.format == "sections") != bool(self.sections):
            errors.append("sections: belongs to the format sections, which needs it")
        return errors


def expression_error(pattern: str) -> str | None:
    """Why this is no regular expression; None if it is one."""
    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"is no regular expression ({error})"
    return None


CHECKS = ("exact", "number", "pattern", "order", "shape")
TAKEN = ("whole", "last_line", "boxed", "after", "match")


@dataclass(frozen=True, kw_only=True)
class VerifierSettings:
    """A check against what is known to be right: each prompt's own `answer`, or a shape."""

    check_: str = option(
        "exact",
        "exact: the same text but for case, width of characters and white space; number: the same "
        "number within the tolerances; pattern: the prompt's answer is a regular expression that "
        "matches all of it; order: the prompt's answer is a list whose items must occur in that "
        "order; shape: JSON of this shape, whatever the prompt.",
        choices=CHECKS,
    )
    take: str = option(
        "whole",
        "Which part of the response is the answer. after: what follows the last `marker` on its "
        "line; match: the first group of `pattern` where it matches last.",
        choices=TAKEN,
    )
    marker: str = option("Answer:", "Stands before the answer, for take: after.")
    pattern: str = option("", "Finds the answer, for take: match.")
    tolerance: float = option(1e-6, "Numbers this close are the same.", minimum=0.0)
    relative_tolerance: float = option(
        0.0, "Numbers this close are the same, as a share of the right one.", minimum=0.0
    )
    shape: Mapping[str, Any] = option(
        {}, "JSON Schema, of which type, enum, const, properties, required, … are understood."
    )
    score: float = option(1.0, "Of a right answer.", unit="score")
    wrong: float = option(0.0, "Of a wrong one.", unit="score")
    missing: float | None = option(
        None, "Where no answer is found in the response; as a wrong one unless set.", unit="score"
    )
    partial: bool = option(
        False, "order: the share of pairs in the right order, between wrong and score."
    )
    on_wrong: str = option(
        PENALISE,
        "penalise: the score is all; block: and a wrong response is kept out of what is generated; "
        "review: people see it.",
        choices=(PENALISE, BLOCK, REVIEW),
    )
    without_answer: str = option(
        "refuse",
        "Prompts that have no answer: refuse to start, or give each of their responses 0.",
        choices=("refuse", "zero"),
    )

    def check(self) -> list[str]:
        errors = []
        if self.take == "match" and not self.pattern:
            errors.append("pattern: is needed to take a match")
        if self.pattern and (told := expression_error(self.pattern)):
            errors.append(f"pattern: {told}")
        if self.take == "after" and not self.marker.strip():
            errors.append("marker: must not be empty")
        if self.check_ == "shape":
            errors += [f"shape{told}" for told in shape_errors(self.shape)]
            errors += [] if self.shape else ["shape: is needed to check a shape"]
        return errors

    @property
    def needs_answers(self) -> bool:
        return self.check_ != "shape"


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_KEYWORDS = {
    "type": str,
    "enum": list,
    "const": object,
    "properties": dict,
    "required": list,
    "additionalProperties": bool,
    "items": dict,
    "minItems": int,
    "maxItems": int,
    "minimum": (int, float),
    "maximum": (int, float),
    "minLength": int,
    "maxLength": int,
    "pattern": str,
}


def shape_errors(shape: Mapping[str, Any], where: str = "") -> list[str]:
    """What of a shape would not be checked, or could not be: nothing is ignored in silence."""
    errors = []
    for key, value in shape.items():
        wanted = _KEYWORDS.get(key)
        if wanted is None:
            errors.append(f"{where}.{key}: is not understood (known: {', '.join(_KEYWORDS)})")
        elif not isinstance(value, wanted) or (
            isinstance(value, bool) and wanted in (int, (int, float))
        ):
            errors.append(f"{where}.{key}: does not take {json.dumps(value)}")
        elif key == "type" and value not in _TYPES:
            errors.append(f"{where}.type: {value!r} is none of {', '.join(_TYPES)}")
        elif key == "pattern" and (told := expression_error(value)):
            errors.append(f"{where}.pattern: {told}")
        elif key == "items":
            errors += shape_errors(value, f"{where}.items")
        elif key == "properties":
            for name, inner in value.items():
                path = f"{where}.properties.{name}"
                fits = isinstance(inner, dict)
                errors += shape_errors(inner, path) if fits else [f"{path}: must be an object"]
    return errors
