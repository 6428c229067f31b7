"""Rules and hard constraints on text: what they earn, what they cost, and what they block.

The value of a response is Σ over the rules of `score` where it keeps the rule and of −`penalty`
where it breaks it. A hard constraint (on_violation: block) without a penalty leaves the value as it
is and withholds the response: it must give no gradient. With a penalty the penalty is taught.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import regex

from measures.messages import Messages
from workers.config.parsing import read
from workers.config.rewards import BLOCK, REVIEW, Bounds, RuleSettings
from workers.contract.events import Fault, RecipeError
from workers.rewards.source import FORMED, Scores

# Regular expressions that people wrote, on text that a model wrote: none may take for ever.

SECONDS = 2.0  # for one text; a sane expression takes microseconds

Found = TypeVar("Found")


class Expression:
    """A compiled expression; `where` is its path in the configuration, for errors."""

    def __init__(self, pattern: str, *, where: str, ignore_case: bool = False) -> None:
        self._compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
        self._where = where

    def search(self, text: str) -> "regex.Match[str] | None":
        return self._within(lambda: self._compiled.search(text, timeout=SECONDS))

    def fullmatch(self, text: str) -> "regex.Match[str] | None":
        return self._within(lambda: self._compiled.fullmatch(text, timeout=SECONDS))

    def last(self, text: str) -> "regex.Match[str] | None":
        """The last of the matches that do not overlap."""
        return self._within(
            lambda: next(iter(list(self._compiled.finditer(text, timeout=SECONDS))[-1:]), None)
        )

    def _within(self, look: Callable[[], Found]) -> Found:
        try:
            return look()
        except TimeoutError as error:
            raise RecipeError(
                "slow_expression",
                Fault.CONFIGURATION,
                f"{self._where}: took over {SECONDS:g} s on one response. Avoid repeats inside "
                "repeats, such as (a+)+.",
            ) from error


# Reading a response: phrases, boxed answers, numbers and JSON in it. Nothing here raises.

_FENCE = re.compile(r"\A```[a-zA-Z]*[ \t]*\n(.*)\n[ \t]*```\Z", re.DOTALL)
_NUMBER = re.compile(
    r"""(?<![\w.,])                                  # not inside another number or a name
    (?P<sign>[-+\u2212]?)\s?[$\u20ac\u00a3]?\s?
    (?: \\[dt]?frac\{(?P<top>\d+)\}\{(?P<bottom>\d+)\}
      | (?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<rest>\.\d+)?(?P<power>[eE][-+]?\d{1,3})?
        (?:\s?/\s?(?P<under>\d+))?
      | (?P<bare>\.\d+)
    )(?!\w|[.,]\d)""",
    re.VERBOSE,
)


def plain(text: str) -> str:
    """Without what hides a phrase from a search and not from a reader: other widths of the same
    letters, and characters that take no room."""
    folded = unicodedata.normalize("NFKC", text)
    return "".join(c for c in folded if unicodedata.category(c) != "Cf")


def same_text(first: str, second: str, *, fold: bool = True) -> bool:
    """Equal but for widths, runs of white space and a full stop at the end, and for case if
    `fold`."""
    a, b = (" ".join(plain(text).split()).rstrip(".") for text in (first, second))
    return a.casefold() == b.casefold() if fold else a == b


def phrase_pattern(phrase: str, *, ignore_case: bool = True) -> re.Pattern[str]:
    """Finds the phrase in `plain` text as whole words, whatever white space lies between them."""
    words = r"\s+".join(re.escape(word) for word in plain(phrase).split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE if ignore_case else 0)


def boxed(text: str) -> list[str]:
    r"""The contents of every \boxed{…}, in order, braces counted; one that never ends is none."""
    found = []
    for start in re.finditer(r"\\boxed\s*\{", text):
        depth, at = 1, start.end()
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if not depth:
            found.append(text[start.end() : at - 1].strip())
    return found


def numbers(text: str) -> list[Fraction]:
    """Every number, in order. 1,234 is one number, 3/4 and \\frac{3}{4} are quotients, a sign of
    percent or of money is not read."""
    return [value for match in _NUMBER.finditer(text) if (value := _value(match)) is not None]


def _value(match: re.Match[str]) -> Fraction | None:
    part = match.groupdict()
    if part["top"]:
        top, bottom = Fraction(part["top"]), int(part["bottom"])
    elif part["bare"]:
        top, bottom = Fraction("0" + part["bare"]), 1
    else:
        digits = part["whole"].replace(",", "") + (part["rest"] or "") + (part["power"] or "")
        top, bottom = Fraction(digits), int(part["under"] or 1)
    if not bottom:
        return None
    return (-1 if part["sign"] in ("-", "\u2212") else 1) * top / bottom


def json_in(text: str) -> tuple[bool, Any]:
    """(whether the text is JSON, alone or in one code fence; its value). NaN is no JSON."""
    text = text.strip()
    fenced = _FENCE.match(text)
    try:
        return True, json.loads(fenced.group(1) if fenced else text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False, None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class Rule:
    """One rule, ready to be asked."""

    def __init__(self, settings: RuleSettings, *, where: str = "") -> None:
        self.settings = settings
        self.name = settings.name
        self._test = getattr(self, f"_{settings.test}")
        fold = settings.ignore_case is not False  # phrases, unless told
        phrases = settings.contains or settings.contains_any or settings.lacks or settings.sections
        self._phrases = [(text, phrase_pattern(text, ignore_case=fold)) for text in phrases]
        pattern = settings.matches or settings.matches_not
        self._expression = Expression(
            pattern, where=f"{where}{settings.test}", ignore_case=bool(settings.ignore_case)
        )
        bounds = settings.words or settings.characters
        self._bounds = read(Bounds, bounds)[0] if bounds else None

    def broken(self, text: str) -> str | None:
        """How the text breaks the rule, in words; None if it keeps it."""
        told: str | None = self._test(text)
        return told

    def _contains(self, text: str) -> str | None:
        text = plain(text)
        absent = [phrase for phrase, pattern in self._phrases if not pattern.search(text)]
        return f"does not say “{absent[0]}”" if absent else None

    def _contains_any(self, text: str) -> str | None:
        text = plain(text)
        if any(pattern.search(text) for _, pattern in self._phrases):
            return None
        return "says none of " + ", ".join(f"“{phrase}”" for phrase, _ in self._phrases)

    def _lacks(self, text: str) -> str | None:
        text = plain(text)
        said = [phrase for phrase, pattern in self._phrases if pattern.search(text)]
        return f"says “{said[0]}”" if said else None

    def _matches(self, text: str) -> str | None:
        return None if self._expression.search(text) else "does not match the expression"

    def _matches_not(self, text: str) -> str | None:
        found = self._expression.search(text)
        return f"matches the expression with “{found.group()[:80]}”" if found else None

    def _words(self, text: str) -> str | None:
        return self._beyond(len(text.split()), "words")

    def _characters(self, text: str) -> str | None:
        return self._beyond(len(text), "characters")

    def _beyond(self, count: int, unit: str) -> str | None:
        least, most = self._bounds.least, self._bounds.most  # type: ignore[union-attr] # checked where the rule was built
        if least is not None and count < least:
            return f"has {count:,} {unit}, under {least:,}"
        if most is not None and count > most:
            return f"has {count:,} {unit}, over {most:,}"
        return None

    def _format(self, text: str) -> str | None:
        if self.settings.format == "json":
            return None if json_in(text)[0] else "is no JSON"
        if self.settings.format == "boxed":
            found = boxed(text)
            if len(found) != 1:
                return f"holds {len(found)} boxed answers, not one"
            return None if found[0] else "holds an empty box"
        return self._in_order(text)

    def _in_order(self, text: str) -> str | None:
        """Each heading on a line of its own, marks of Markdown aside, after the one before it."""
        lines = [line.strip(" \t#*_:") for line in plain(text).splitlines()]
        at = 0
        for heading, pattern in self._phrases:
            place = next((i for i in range(at, len(lines)) if pattern.fullmatch(lines[i])), None)
            if place is None:
                return f"lacks the section “{heading}” in its place"
            at = place + 1
        return None


class RulesReward:
    """A set of rules as a source of rewards; `parts` hold what each rule earned or cost, and
    `formed`, 1 where every rule of format is kept, where there is one."""

    def __init__(self, rules: Sequence[RuleSettings], *, where: str = "reward") -> None:
        self.rules = [
            Rule(settings, where=f"{where}.rules[{i}].") for i, settings in enumerate(rules)
        ]

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        parts: dict[str, list[float]] = {rule.name: [] for rule in self.rules}
        reviews: list[str | None] = []
        blocked, withheld = [], []
        forms = [rule.name for rule in self.rules if rule.settings.format]
        formed: list[float] = []
        for text in responses:
            told = {rule.name: rule.broken(text) for rule in self.rules}
            if forms:
                formed.append(float(all(told[name] is None for name in forms)))
            for rule in self.rules:
                kept = told[rule.name] is None
                parts[rule.name].append(rule.settings.score if kept else -rule.settings.cost)
            broken = [rule for rule in self.rules if told[rule.name] is not None]
            hard = [rule for rule in broken if rule.settings.on_violation == BLOCK]
            shown = [rule for rule in broken if rule.settings.on_violation in (BLOCK, REVIEW)]
            reasons = [f"rule {rule.name}: the answer {told[rule.name]}" for rule in shown]
            reviews.append(". ".join(reasons) or None)
            blocked.append(bool(hard))
            withheld.append(any(rule.settings.withholds for rule in hard))
        values = [sum(row) for row in zip(*parts.values(), strict=True)]
        if formed:
            parts[FORMED] = formed
        return Scores(values, parts, reviews=reviews, blocked=blocked, withheld=withheld)
