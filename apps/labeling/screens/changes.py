"""What changed between two versions of a text, line by line, for people to read."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

CONTEXT = 2  # unchanged lines shown around a change


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a comparison; a gap stands for unchanged lines that are left out."""

    kind: Literal["same", "added", "removed", "gap"]
    text: str = ""

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "−", "gap": "⋯"}.get(self.kind, "")


def changed_lines(old: str, new: str) -> list[Line]:
    """The changes with some lines around each; empty when the texts are the same.

    Lines are compared without trailing blanks, which nobody sees.
    """
    before = [line.rstrip() for line in old.splitlines()]
    after = [line.rstrip() for line in new.splitlines()]
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(CONTEXT))
    lines: list[Line] = []
    for number, group in enumerate(groups):
        if number or group[0][1]:
            lines.append(Line("gap"))
        for tag, a, a_end, b, b_end in group:
            lines.extend(_lines(tag, before[a:a_end], after[b:b_end]))
    if groups and groups[-1][-1][2] < len(before):
        lines.append(Line("gap"))
    return lines


def _lines(tag: str, before: list[str], after: list[str]) -> Iterator[Line]:
    if tag == "equal":
        yield from (Line("same", text) for text in before)
        return
    yield from (Line("removed", text) for text in before)
    yield from (Line("added", text) for text in after)
