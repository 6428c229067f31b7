"""CPU time that texts may cost, and a parser that keeps to it."""

import time

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

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
