"""My answers: what a person may narrow their own list to, and how one is shown in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from django.db.models import Q, QuerySet

from apps.common.registry import Use, vote_traces, vote_uses
from apps.labeling import selectors
from apps.labeling.models import Vote
from apps.labeling.texts import excerpt

_NARROWER = {
    "noted": ~Q(rationale="") | Q(flags__len__gt=0) | Q(reasons__len__gt=0),
    "improved": Q(improvement__isnull=False),
    "changed": Q(revision__gt=1),
}
_LONGEST_CHOSEN = 90


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer in the list: `frozen_in` datasets that stay as they are hold it already. `uses`
    names them, for readers only: annotators see how many."""

    vote: Vote
    prompt: str
    side: str
    words: str
    chosen: str
    frozen_in: int
    uses: list[Use]


def answers_only(answers: QuerySet[Vote], only: str) -> QuerySet[Vote]:
    """Those with a note, reason or flag; with an improved answer; or changed since. "": all."""
    return answers.filter(_NARROWER[only]) if only else answers


def answer_rows(answers: Iterable[Vote], *, named: bool) -> list[AnswerRow]:
    """`named`: with the names of the datasets and models that hold each answer."""
    votes = list(answers)
    ids = [vote.pk for vote in votes]
    frozen = vote_uses(ids)
    uses = vote_traces(ids) if named else {}
    return [_row(vote, frozen.get(vote.pk, 0), uses.get(vote.pk, [])) for vote in votes]


def _row(vote: Vote, frozen_in: int, uses: list[Use]) -> AnswerRow:
    answered = selectors.as_answered(vote)
    chosen = {"left": answered.left, "right": answered.right}.get(answered.side)
    words = {"left": "A is better", "right": "B is better"}.get(answered.side)
    return AnswerRow(
        vote=vote,
        prompt=excerpt(answered.prompt),
        side=answered.side,
        words=words or vote.get_choice_display(),
        chosen=excerpt(chosen, _LONGEST_CHOSEN) if chosen else "",
        frozen_in=frozen_in,
        uses=uses,
    )


# What changed between two versions of a text, line by line, for people to read.

CONTEXT = 2  # unchanged lines shown around a change


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a comparison; a gap stands for unchanged lines that are left out."""

    kind: Literal["same", "added", "removed", "gap"]
    text: str = ""

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "−", "gap": "⋯"}.get(self.kind, "")


def changed_lines(old: str, new: str) -> list[DiffLine]:
    """The changes with some lines around each; empty when the texts are the same.

    Lines are compared without trailing blanks, which nobody sees.
    """
    before = [line.rstrip() for line in old.splitlines()]
    after = [line.rstrip() for line in new.splitlines()]
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(CONTEXT))
    lines: list[DiffLine] = []
    for number, group in enumerate(groups):
        if number or group[0][1]:
            lines.append(DiffLine("gap"))
        for tag, a, a_end, b, b_end in group:
            lines.extend(_lines(tag, before[a:a_end], after[b:b_end]))
    if groups and groups[-1][-1][2] < len(before):
        lines.append(DiffLine("gap"))
    return lines


def _lines(tag: str, before: list[str], after: list[str]) -> Iterator[DiffLine]:
    if tag == "equal":
        yield from (DiffLine("same", text) for text in before)
        return
    yield from (DiffLine("removed", text) for text in before)
    yield from (DiffLine("added", text) for text in after)
