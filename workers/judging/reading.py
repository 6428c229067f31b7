"""What a judge is asked, and which verdict its answer holds. No torch."""

import re
from collections.abc import Mapping

from measures.messages import Messages, said
from workers.config.judging import LAST_LINE, PLACES, JudgeSettings

FIRST, SECOND, TIE = 1.0, 0.0, 0.5  # P(the answer shown first is better)
SAID = {"a": FIRST, "b": SECOND, "tie": TIE}
_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
# A letter is no verdict inside a word ("Ab", "B2"), before an apostrophe ("A's"), beside a hyphen
# ("A-level"), nor is the article in "a tie".
_BEFORE, _AFTER = r"(?<![^\W_])(?<!\w['’-])", r"(?![^\W_])(?!['’-]\w)"
_LETTER = re.compile(rf"{_BEFORE}([AB]){_AFTER}")
_TIE = re.compile(rf"(?:\ba\s+)?{_BEFORE}tie{_AFTER}", re.IGNORECASE)
_BARE = re.compile(r"\W*(?:(?:answer|verdict|choice)\W+)*([ab])\W*", re.IGNORECASE)
_THOUGHT = "</think>"


def judge_prompt(settings: JudgeSettings, prompt: Messages, first: str, second: str) -> Messages:
    """One message of the user. Texts are put in once, so that a placeholder inside an answer stays
    what it is: text."""
    values: Mapping[str, str] = {
        "prompt": as_text(prompt),
        "first": first,
        "second": second,
        "rubric": settings.rubric,
    }
    asked = _PLACE.sub(lambda found: values[found[1]], settings.prompt)
    return [{"role": "user", "content": asked}]


def as_text(messages: Messages) -> str:
    """A single request as it is; of a longer conversation each message with its role."""
    if len(messages) == 1:
        return said(messages[0])
    return "\n\n".join(f"{one['role']}: {said(one)}" for one in messages)


def read_verdict(text: str, parser: str) -> float | None:
    """P(the answer shown first is better) of what a judge said: 1 for A, 0 for B, ½ for a tie, None
    where it says neither.

    The first A, B or tie that stands alone, of the whole text or (`last_line`) of its last line
    that is not empty; in brackets, bold or after "Answer:" too. What a model thought before (up to
    `</think>`) is no answer. A small a or b counts only where the line says nothing else.
    """
    told = text.rpartition(_THOUGHT)[2].strip()
    if parser == LAST_LINE:
        told = told.splitlines()[-1].strip() if told else ""
    if bare := _BARE.fullmatch(told):
        return SAID[bare[1].lower()]
    letter, tie = _LETTER.search(told), _TIE.search(told)
    if tie is not None and (letter is None or tie.start() <= letter.start()):
        return TIE
    return None if letter is None else SAID[letter[1].lower()]
