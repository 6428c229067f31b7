"""Text of a model inside our HTML: escaped, and with nothing in it that cannot be seen."""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from html import escape

# Characters that force an order on the text around them, that carry hidden text, or that are
# control characters without a glyph. Marks a script needs (joiners, left-to-right mark) stay.
_TRICKS = re.compile(
    "[\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"
    "\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+"
)


def text_escaped(text: str) -> str:
    """Text for the inside of an element."""
    return escape(text, quote=False)


def tricks_named(text: str) -> str:
    """Invisible characters made visible by their names; safe on finished HTML too."""
    return _TRICKS.sub(_named, text)


def _named(match: re.Match[str]) -> str:
    return _run_named(match[0])


@lru_cache(256)
def _run_named(run: str) -> str:
    """A run of them by names and counts, so that a long one stays short."""
    counts = Counter(run)
    return f"⟨{', '.join(_name(char) + (f' ×{n}' if n > 1 else '') for char, n in counts.items())}⟩"


def _name(char: str) -> str:
    return unicodedata.name(char, "").lower() or f"U+{ord(char):04X}"
