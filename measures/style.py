"""Marks of style that a reward model could learn instead of quality, found by pattern.

Patterns see form, not meaning: "I cannot stress enough" is not taken for a refusal (a refusal says
that it cannot help, or answer, or do it), but one worded unlike any pattern is missed. English
wording only; form (lists, code, headings) in any language.
"""

import re
from collections.abc import Iterator

from measures.corpus import token_count

_LIST = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_CODE = re.compile(r"```|~~~|`[^`\n]+`")
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")
_TABLE = re.compile(r"^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]+\]\([^)\s]+\)")
_CANNOT = (
    r"(?:can['’]?t|can ?not|could(?:n['’]?t| not)|won['’]?t|will not"
    r"|(?:am|['’]m) (?:not able|unable|not allowed) to)"
)
_DOING = (
    r"(?:help(?! but\b)|assist|answer|provide|do (?:that|this)|comply|fulfil|fulfill|engage in"
    r"|discuss|advise)"
)
_MODEL = r"(?:AI|artificial intelligence|(?:large )?language model)"
_REFUSAL = re.compile(
    rf"\bI ?{_CANNOT} {_DOING}\b"
    r"|\bI(?:['’]m| am) (?:sorry|afraid),? (?:but )?(?:I (?:can|will|won|am un|must)|I['’]m un)"
    rf"|\b(?:as|I(?:['’]m| am)) (?:just )?an? {_MODEL}\b"
    r"|\bI (?:must|have to) (?:decline|refuse)\b"
    r"|\bI(?:['’]m| am) not (?:comfortable|going to|able to) (?:help|answer|do|discuss|provid)\w*",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"\b(?:thank you|thanks|please|you['’]?re welcome|sorry|apologi[sz]e|glad to|happy to|"
    r"great question|good question|hope (?:this|that) helps|feel free)\b",
    re.IGNORECASE,
)
_WARMTH = re.compile(r"[!❤♥☺\U0001F300-\U0001FAFF]")
_QUESTION = re.compile(r"\?[\s\"'”’)]*\Z")

# A text has the mark when the pattern is found anywhere in it.
MARKS = {
    "list": _LIST,
    "heading": _HEADING,
    "bold": _BOLD,
    "code": _CODE,
    "table": _TABLE,
    "link": _LINK,
    "refusal": _REFUSAL,
    "polite": _POLITE,
    "exclaims": _WARMTH,
    "asks_back": _QUESTION,
}
MARKDOWN = frozenset({"list", "heading", "bold", "code", "table", "link"})


def marks_of(text: str) -> frozenset[str]:
    """Keys of the marks in a text, and "markdown" where any of that kind is."""
    found = {key for key, pattern in MARKS.items() if pattern.search(text)}
    return frozenset(found | {"markdown"}) if found & MARKDOWN else frozenset(found)


def is_degenerate(text: str, *, least_words: int = 3) -> bool:
    """No answer to speak of: fewer than `least_words` tokens, or the same few over and over.

    The latter: of 20 or more tokens fewer than one in eight is new.
    """
    n = token_count(text)
    if n < least_words:
        return True
    return n >= 20 and len(set(_words(text))) * 8 < n


def _words(text: str) -> Iterator[str]:
    yield from text.casefold().split()
