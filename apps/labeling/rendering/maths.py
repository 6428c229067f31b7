r"""Formulas in model text: `$…$`, `$$…$$`, `\(…\)`, `\[…\]` and amsmath environments.

The parser only finds them and leaves their source in an element of class `math`; the browser
typesets it (static/js/label/maths.js), and without script the source is what one reads. Plain
Markdown would eat the backslashes and underscores of a formula.

Money is text: "$5 and $10", "US$5 a$", "$HOME/bin:$PATH" hold no formula. The rules for a dollar
are pandoc's (no blank inside the delimiters, no digit after the closing one) and three of our own:
no letter or digit touches the delimiters from outside, a formula that starts with a digit holds no
words, and escaped brackets around mere words or digits ("\[1\]") are brackets.
"""

import re
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath.index import math_inline_dollar

from apps.labeling.rendering.escaping import text_escaped

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
