"""A long text in pieces that Markdown can be asked to parse one by one.

The parser's worst cases are quadratic in the length of what it is given: 0.3 s at 20,000
characters. Pieces end at blank lines outside of fenced code, so that ordinary text reads the same
in pieces as in one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    held: list[str] = []
    size = 0
    for block, is_code in _blocks(text):
        if held and (is_code or size + len(block) > LONGEST_PIECE):
            yield Piece("".join(held))
            held, size = [], 0
        if is_code or len(block) > LONGEST_PIECE:
            yield Piece(block, is_plain=not is_code)
            continue
        held.append(block)
        size += len(block)
    if held:
        yield Piece("".join(held))


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
