"""Formulas in model text: `$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]` and amsmath environments.

The parser only finds them and leaves their source in an element of class `math`; the browser
typesets it (static/js/label/maths.js), and without script the source is what one reads. Plain
Markdown would eat the backslashes and underscores of a formula.

Money is text: "$5 and $10", "US$5 a$", "$HOME/bin:$PATH" hold no formula. The rules for a dollar
are pandoc's (no blank inside the delimiters, no digit after the closing one) and three of our own:
no letter or digit touches the delimiters from outside, a formula that starts with a digit holds no
words, and escaped brackets around mere words or digits ("\\[1\\]") are brackets.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath.index import math_inline_dollar

# Text of a model inside our HTML: escaped, and with nothing in it that cannot be seen.

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


# Blanks and digits are judged here: the plugin takes the end of the text for what precedes its
# first character.
_dollar_rule = math_inline_dollar(allow_space=True, allow_digits=True, allow_double=True)
_CLOSES = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_SIGN = re.compile(r"[\\^_=+<>{}|*/−-]")
_STRONG_SIGN = re.compile(r"[\\^_={}<>]")
_WORD = re.compile(r"(?:^|[\s(])[^\W\d_]{2,}(?=$|[\s).,;:])")


def maths_plugin(md: MarkdownIt) -> None:
    """Teach a parser formulas."""
    md.inline.ruler.before("escape", "math_dollar", _dollar)
    md.inline.ruler.before("escape", "math_bracket", _bracket)
    md.block.ruler.before(
        "fence",
        "math_block",
        _block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    amsmath_plugin(md)
    for name, template in _RENDERED.items():
        md.add_render_rule(name, _renderer(template))


_RENDERED = {
    "math_inline": '<span class="math">{}</span>',
    "math_inline_double": '<span class="math display">{}</span>',
    "math_block": '<div class="math display">{}</div>\n',
    "amsmath": '<div class="math display">{}</div>\n',
}


def _renderer(template: str) -> Callable[..., str]:
    def render(
        self: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType
    ) -> str:
        return template.format(text_escaped(tokens[index].content.strip()))

    return render


def _dollar(state: StateInline, silent: bool) -> bool:
    begin = state.pos
    if begin and state.src[begin - 1].isalnum():
        return False
    if not _dollar_rule(state, True):
        return False
    end, state.pos = state.pos, begin
    size = 2 if state.src.startswith("$$", begin) else 1
    content = state.src[begin + size : end - size]
    after = state.src[end : end + 1]
    if end > state.posMax or after.isalnum() or not _is_formula(content, loose=size == 2):
        return False
    return _dollar_rule(state, silent)


def _bracket(state: StateInline, silent: bool) -> bool:
    opens = state.src[state.pos : state.pos + 2]
    if opens not in ("\\(", "\\["):
        return False
    begin = state.pos + 2
    end = _closing(state.src, _CLOSES[opens], begin, state.posMax)
    content = state.src[begin:end]
    if end < 0 or not _holds_maths(content):
        return False
    if not silent:
        token = state.push("math_inline" if opens == "\\(" else "math_inline_double", "math", 0)
        token.content, token.markup = content, opens
    state.pos = end + 2
    return True


def _closing(src: str, closes: str, begin: int, end: int) -> int:
    r"""Where `closes` stands first, passing by `\\` followed by a bracket; -1 for nowhere."""
    found = src.find(closes, begin, end)
    while found > 0 and (found - len(src[begin:found].rstrip("\\")) - begin) % 2:
        found = src.find(closes, found + 1, end)
    return found


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """A formula that begins a line and ends one, over any number of lines without a blank one."""
    if state.is_code_block(first):
        return False
    opens = state.src[state.bMarks[first] + state.tShift[first] :][:2]
    if opens not in ("$$", "\\["):
        return False
    lines: list[str] = []
    for line in range(first, end):
        if line > first and (state.isEmpty(line) or state.sCount[line] < state.blkIndent):
            return False
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
        if line > first and text.startswith("\\["):  # also keeps the scan linear
            return False
        body = text[2:] if line == first else text
        at = _closing(body, _CLOSES[opens], 0, len(body))
        if at < 0:
            lines.append(body)
            continue
        after = body[at + 2 :].strip()
        content = "\n".join([*lines, body[:at]]).strip()
        if after.strip(".,;:") or not (_is_formula(content, loose=True) and _holds_maths(content)):
            return False
        if not silent:
            state.line = line + 1
            token = state.push("math_block", "math", 0)
            token.block, token.content, token.markup = True, content + after, opens
            token.map = [first, state.line]
        return True
    return False


def _is_formula(content: str, *, loose: bool) -> bool:
    """Whether what stands between dollars is one; loose: blanks may be at its ends."""
    if not content.strip() or (not loose and content != content.strip()):
        return False
    if content[0].isdigit() and not loose:
        return bool(_STRONG_SIGN.search(content)) or not _WORD.search(content)
    return True


def _holds_maths(content: str) -> bool:
    """Whether escaped brackets hold a formula, and not a footnote or words."""
    return bool(_SIGN.search(content)) or (content.strip().isalpha() and len(content.strip()) == 1)


# A long text in pieces that Markdown can be asked to parse one by one.
#
# The parser's worst cases are quadratic in the length of what it is given: 0.3 s at 20,000
# characters. Pieces end at blank lines outside of fenced code, so that ordinary text reads the same
# in pieces as in one.

LONGEST_WHOLE = 20_000  # characters; up to here a text is one piece
LONGEST_PIECE = 8_000  # of longer texts; a paragraph of more is plain, unless it is fenced code

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to parse, or to show as it is."""

    text: str
    is_plain: bool = False


def pieces_of(text: str) -> Iterator[Piece]:
    """The pieces in order; joined, they are the text."""
    if len(text) <= LONGEST_WHOLE:
        yield Piece(text)
        return
    blocks: list[str] = []
    size = 0
    for block, is_code in _blocks(text):
        if blocks and (is_code or size + len(block) > LONGEST_PIECE):
            yield Piece("".join(blocks))
            blocks, size = [], 0
        if is_code or len(block) > LONGEST_PIECE:
            yield Piece(block, is_plain=not is_code)
            continue
        blocks.append(block)
        size += len(block)
    if blocks:
        yield Piece("".join(blocks))


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of lines up to a blank one that is followed by a line without indentation; whole fences.

    Yields (lines, whether they are fenced code).
    """
    lines: list[str] = []
    fence = ""
    ended = False  # a blank line was the last
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                yield "".join(lines), True
                lines, fence, ended = [], "", False
            continue
        if mark or (ended and line[:1].strip()):
            if lines:
                yield "".join(lines), False
            lines = []
        if mark:
            fence = mark[1]
        lines.append(line)
        ended = not line.strip()
    if lines:
        yield "".join(lines), bool(fence)
