"""Highlighted code, within an allowance of processor time."""

import time
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import (
    Comment,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Text,
    _TokenType,
)

from apps.labeling.rendering.maths import text_escaped

# CPU time that texts may cost, and a parser that keeps to it.

_EVERY = 16  # calls between two looks at the clock, which cost half a microsecond


class Spent(Exception):
    """There is no time left for this text."""


class Allowance:
    """CPU seconds of this thread from now on."""

    def __init__(self, seconds: float, *, is_short: bool = False) -> None:
        self._ends = time.thread_time() + seconds
        self._calls = 0
        self.is_short = is_short

    @property
    def spent(self) -> bool:
        return time.thread_time() > self._ends

    def part(self, seconds: float) -> "Allowance":
        """Of so many seconds, or of what is left; then it is short."""
        left = self._ends - time.thread_time()
        return Allowance(min(seconds, left), is_short=left < seconds)

    def check(self) -> None:
        """Raises Spent."""
        self._calls += 1
        if self._calls % _EVERY == 0 and self.spent:
            raise Spent


def allowance_plugin(md: MarkdownIt) -> None:
    """Ask for the time before each rule of a line or a character, of `env["allowance"]`.

    Quotes within quotes look at each line once for each level above it, and a link at each bracket
    after it: all by way of these rules.
    """
    alternatives = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    md.block.ruler.before("table", "allowance", _block, alternatives)
    md.inline.ruler.before("text", "allowance", _inline)


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    state.env["allowance"].check()
    return False


def _inline(state: StateInline, silent: bool) -> bool:
    state.env["allowance"].check()
    return False


# Code in model text, its tokens in spans of a few classes; what they look like says the CSS.
#
# Pygments reads the code. Only a language that the text names and the list below holds: nothing is
# guessed. Some lexers take quadratic time on odd input, so a block is given up, the rest of it
# plain, when the text's allowance of CPU time is spent. Left out of the list are lexers in which a
# single match can take seconds, which nothing interrupts (MATLAB, OCaml, INI, console sessions).

LONGEST_CODE = 20_000  # characters of a block; longer ones are plain

# The class of each kind of token and of the kinds below it; other kinds look like the text.
_CLASS_OF = {
    Comment: "com",
    Comment.Preproc: "kw",
    Keyword: "kw",
    Operator.Word: "kw",
    Name.Tag: "kw",
    Generic.Heading: "kw",
    Generic.Subheading: "kw",
    String: "str",
    Number: "num",
    Keyword.Constant: "num",
    Name.Attribute: "fn",
    Name.Class: "fn",
    Name.Decorator: "fn",
    Name.Function: "fn",
    Generic.Inserted: "ins",
    Generic.Deleted: "del",
}
CLASSES = frozenset(_CLASS_OF.values())

# Pygments' name of each lexer, and the words after a fence that choose it.
_LANGUAGES = {
    "bash": "bash sh shell zsh ksh console shell-session",
    "c": "c h",
    "cmake": "cmake",
    "cpp": "cpp c++ cxx cc hpp",
    "csharp": "csharp c# cs",
    "css": "css",
    "dart": "dart",
    "diff": "diff patch udiff",
    "docker": "docker dockerfile",
    "elixir": "elixir ex exs",
    "erlang": "erlang",
    "fortran": "fortran f90",
    "go": "go golang",
    "graphql": "graphql",
    "groovy": "groovy gradle",
    "haskell": "haskell hs",
    "html": "html xhtml",
    "java": "java",
    "javascript": "javascript js mjs node",
    "json": "json jsonc json5",
    "jsx": "jsx react",
    "julia": "julia jl",
    "kotlin": "kotlin kt",
    "latex": "latex tex",
    "lua": "lua",
    "make": "make makefile",
    "nginx": "nginx",
    "objective-c": "objective-c objectivec objc",
    "perl": "perl pl",
    "php": "php",
    "powershell": "powershell ps1 pwsh",
    "protobuf": "protobuf proto",
    "python": "python py python3 py3",
    "pycon": "pycon",
    "r": "r",
    "ruby": "ruby rb",
    "rust": "rust rs",
    "scala": "scala",
    "scss": "scss sass",
    "sql": "sql postgresql postgres mysql sqlite",
    "swift": "swift",
    "toml": "toml",
    "tsx": "tsx",
    "typescript": "typescript ts",
    "xml": "xml svg",
    "yaml": "yaml yml",
}
_LEXER_OF = {word: lexer for lexer, words in _LANGUAGES.items() for word in words.split()}


def code_html(code: str, language: str, allowance: Allowance) -> str:
    """The code as escaped text with `span` elements; only escaped where it is not highlighted."""
    name = _LEXER_OF.get(language.lower())
    if name is None or len(code) > LONGEST_CODE or allowance.spent:
        return text_escaped(code)
    tokens = _tokens(_lexer(name), code, allowance)
    return "".join(
        f'<span class="{kind}">{text_escaped("".join(texts))}</span>'
        if kind
        else text_escaped("".join(texts))
        for kind, texts in _runs(tokens)
    )


def _runs(tokens: Iterator[tuple[_TokenType, str]]) -> Iterator[tuple[str, Iterator[str]]]:
    """Neighbours that look alike together, as (class, texts)."""
    for kind, run in groupby(tokens, key=lambda token: _class_of(token[0])):
        yield kind, (text for _, text in run)


@cache
def _class_of(kind: _TokenType) -> str:
    return next((_CLASS_OF[up] for up in reversed(kind.split()) if up in _CLASS_OF), "")


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


def _tokens(lexer: Lexer, code: str, allowance: Allowance) -> Iterator[tuple[_TokenType, str]]:
    """The lexer's tokens until the allowance is spent, then the rest as one."""
    for n, (index, kind, text) in enumerate(lexer.get_tokens_unprocessed(code)):
        if n % 16 == 15 and allowance.spent:
            yield Text, code[index:]
            return
        yield kind, text
