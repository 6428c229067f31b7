"""Reading a response: phrases, boxed answers, numbers and JSON in it. Nothing here raises."""

import json
import re
import unicodedata
from fractions import Fraction
from typing import Any

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
