"""Whether a text holds one of a list of phrases, in whatever spelling.

For constraint phrases ("I love you"): an answer that holds one goes to a person. Both sides are
brought to one form first: NFKC and case folding (so full width, mathematical letters and capitals
count as the plain ones), invisible characters and loose combining marks removed, and letters that
look like Latin ones (Cyrillic о, Greek ο) taken for them. Then a phrase is found

- as its words, with any blanks or up to four other non-letters, or nothing, between them
  ("I … love_you", "ILoveYou");
- with a joiner between letters ("l.o.v.e", "l-o-v-e") or all letters of a word spaced out
  ("l o v e");
- with letters drawn out to three or more ("looove");

and only from a word's beginning to a word's end, so that "I loved you" and "I love your dress" do
not hold "I love you". Digits for letters ("l0ve"), misspellings and translations are not found.
In scripts that write vowels as combining marks the marks count as non-letters, so more is found.

Sources: Unicode Standard Annex 15 (NFKC), The Unicode Standard 3.13 (caseless matching), Unicode
Technical Standard 39 (confusables, of which only the common Cyrillic and Greek ones are used here).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Lower-case letters that look like a Latin one (UTS 39, confusables.txt), after case folding.
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁԛԝһӏοαεικνρτυχγ",
    "aeopcyxijsdqwhloaeikvptuxy",
)
_COMBINING = r"\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
# Joiners, variation selectors, marks of direction, soft hyphen, fillers: nothing a reader sees.
_INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)
_LOOSE = re.compile(f"[{_INVISIBLE}{_COMBINING}]")
_JOINER = r"[-._*~'’`|/\\+=·•⋅‧]"
_BETWEEN_WORDS = r"(?:[^\S\n]|\n|[^\w\s]|_){0,6}"
_NOT_LETTERS = re.compile(r"[\W_]+")
_RUNS = re.compile(r"(.)\1+")
_OTHER_SCRIPTS = re.compile(r"[\u0370-\u052f]")  # Greek and Cyrillic
# Everything but ASCII letters and digits, in UTF-8.
_OTHER_BYTES = bytes(code for code in range(256) if code > 127 or not chr(code).isalnum())


@dataclass(frozen=True, slots=True)
class Found:
    """A phrase as it was listed, and the words in which it stands in the (normalised) text."""

    phrase: str
    words: str


@dataclass(frozen=True, slots=True)
class _Phrase:
    phrase: str
    pattern: re.Pattern[str]
    squeezed: str
    # For phrases of ASCII letters: neighbours that stand in every spelling, and all in order.
    neighbours: tuple[bytes, ...]
    quick: re.Pattern[bytes] | None

    def quick_look(self, letters: bytes) -> bool:
        """Whether the letters of a text could hold the phrase."""
        for pair in self.neighbours:
            if pair not in letters:
                return False
        return self.quick is not None and self.quick.search(letters) is not None


class Phrases:
    """A list of phrases, prepared once. A phrase without a letter or digit is a ValueError."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases: Sequence[_Phrase] = [_prepared(phrase) for phrase in phrases]

    def __bool__(self) -> bool:
        return bool(self._phrases)

    def first_in(self, text: str) -> Found | None:
        """The first listed phrase that the text holds, or None.

        The exact search is slow, so it runs only where the phrase's letters follow one another in
        the text, whatever lies between them; a few substring searches settle most texts.
        """
        if not self._phrases:
            return None
        form = normal_form(text)
        letters = form.encode("utf-8", "replace").translate(None, _OTHER_BYTES)
        squeezed = ""
        for known in self._phrases:
            if known.quick is None:
                squeezed = squeezed or _squeezed(form)
                possible = known.squeezed in squeezed
            else:
                possible = known.quick_look(letters)
            if possible and (match := known.pattern.search(form)):
                return Found(known.phrase, " ".join(match[0].split()))
        return None


def normal_form(text: str) -> str:
    """The form in which phrases and texts are compared; see the module's text."""
    if text.isascii():
        return text.lower()  # what NFKC and case folding make of ASCII
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    visible = _LOOSE.sub("", folded)
    return visible.translate(_LOOKALIKES) if _OTHER_SCRIPTS.search(visible) else visible


def _squeezed(form: str) -> str:
    """Letters and digits only, each run of one letter as one."""
    return _RUNS.sub(r"\1", _NOT_LETTERS.sub("", form))


@lru_cache(maxsize=4096)  # a pattern takes a millisecond to compile
def _prepared(phrase: str) -> _Phrase:
    words = [word for word in re.split(r"[\W_]+", normal_form(phrase)) if word]
    if not words:
        raise ValueError(f"the phrase {phrase!r} has no letter or digit")
    body = _BETWEEN_WORDS.join(_word(word) for word in words)
    pattern = re.compile(rf"(?<![^\W_]){body}(?![^\W_])")
    joined = "".join(words)
    squeezed = _squeezed(joined)
    if not joined.isascii():
        return _Phrase(phrase, pattern, squeezed, (), None)
    letters = squeezed.encode()
    pairs = tuple(dict.fromkeys(letters[i : i + 2] for i in range(len(letters) - 1)))
    quick = re.compile(b"".join(b"%c+" % byte for byte in letters))
    return _Phrase(phrase, pattern, squeezed, pairs, quick)


def _word(word: str) -> str:
    """The word joined up, with a joiner between letters, or spaced out letter by letter."""
    letters = [rf"{re.escape(c)}(?:{re.escape(c)}{{2,}})?" for c in word]
    if len(letters) == 1:
        return letters[0]
    joined, spaced = f"{_JOINER}?".join(letters), r"[^\S\n]+".join(letters)
    return f"(?:{joined}|{spaced})"
