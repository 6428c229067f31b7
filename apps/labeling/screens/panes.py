"""A pair as its panes show it: turns of prompt and answers, as HTML and as they were written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from apps.labeling.rendering import texts_html
from apps.labeling.rendering.escaping import text_escaped
from apps.labeling.texts import Messages

_WHO = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    who: str
    role: str
    html: SafeString
    text: str

    @property
    def reads_the_same(self) -> bool:
        """Whether the HTML, without its tags, is what was written."""
        return self.html.replace("<br>", "") == f"<p>{text_escaped(self.text)}</p>\n"


def turns_shown(messages: Messages) -> list[Turn]:
    return _turns([messages])[0]


def pair_shown(prompt: Messages, left: Messages, right: Messages) -> dict[str, Any]:
    """The context of `_panes.html`, with one request to the cache for all texts of the pair."""
    turns, left_turns, right_turns = _turns([prompt, left, right])
    return {
        "prompt": turns,
        "conversation": len(turns) > 1,
        "panes": [
            _pane("left", "A", left_turns),
            _pane("right", "B", right_turns),
        ],
    }


def _pane(side: str, letter: str, turns: list[Turn]) -> dict[str, Any]:
    return {"side": side, "letter": letter, "turns": turns, "conversation": len(turns) > 1}


def _turns(lists: Sequence[Messages]) -> list[list[Turn]]:
    every = iter(texts_html(message["content"] for messages in lists for message in messages))
    return [[_turn(message, next(every)) for message in messages] for messages in lists]


def _turn(message: dict[str, str], html: SafeString) -> Turn:
    return Turn(_WHO[message["role"]], message["role"], html, message["content"])
