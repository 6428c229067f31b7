"""What the label screen shows, prepared for its template.

Nothing of an answer's origin and nothing of other votes comes through here: the template cannot
show what it is not given.
"""

from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from apps.accounts.models import Project, User
from apps.labeling import selectors
from apps.labeling.rendering import texts_html
from apps.labeling.services import FLAGS, Lease, NothingReason, Offers
from apps.labeling.texts import Messages

_WHO = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
SKIP_REASONS = (
    "Not my subject",
    "Prompt is unclear",
    "A language I do not read",
    "Something is broken or cut off",
)


@dataclass(frozen=True, slots=True)
class Turn:
    who: str
    role: str
    html: SafeString


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence above the pair; `tone` is a note's class."""

    text: str
    tone: str = "warn"
    icon: str = "triangle-alert"


@dataclass(frozen=True, slots=True)
class Button:
    """A choice: what it sends, what it says, its keys (the first is printed on it)."""

    value: str
    label: str
    keys: str
    printed: str
    tone: str = ""
    short: str = ""


def context(
    got: Lease | NothingReason | selectors.AnsweredPair,
    *,
    project: Project,
    annotator: User,
    undo: int | None = None,
    notice: Notice | None = None,
    typed: dict[str, Any] | None = None,
    back_to: str = "",
) -> dict[str, Any]:
    """The context of `_pair.html`: a pair to judge, an answer to change, or why there is nothing.

    typed: what the person had entered, given back when it could not be stored.
    """
    common = {
        "notice": notice,
        "undo": undo,
        "page_title": "Label",
        "nav": "label",
        "typed": typed or {},
        "back_to": back_to,
    }
    if isinstance(got, NothingReason):
        return common | {"nothing": got, "n_today": got.n_today}
    shown = pair_shown(got.prompt, got.left, got.right)
    if isinstance(got, selectors.AnsweredPair):
        offers = Offers.of(selectors.settings_get(project=project))
        return common | shown | {
            "editing": got,
            "chosen": _chosen(got),
            "key": f"revise.{got.vote.pk}.{got.vote.revision + 1}",
            "buttons": buttons(offers),
            "flags": flags(got.vote.flags),
            "offers": offers,
            "typed": {"rationale": got.vote.rationale} | (typed or {}),
        }  # fmt: skip
    return common | shown | {
        "lease": got,
        "number": got.n_today + 1,
        "n_today": got.n_today,
        "remaining": selectors.remaining_for(
            project=project, annotator=annotator, n_today=got.n_today
        ),
        "remaining_cap": selectors.REMAINING_CAP,
        "key": got.key,
        "buttons": buttons(got.offers),
        "flags": flags((typed or {}).get("flags", ())),
        "offers": got.offers,
        "skip_reasons": SKIP_REASONS,
    }  # fmt: skip


def pair_shown(prompt: Messages, left: Messages, right: Messages) -> dict[str, Any]:
    """The turns of prompt and answers as HTML, with one request to the cache."""
    every = [*prompt, *left, *right]
    html = texts_html(message["content"] for message in every)
    turns = [
        Turn(_WHO[message["role"]], message["role"], text)
        for message, text in zip(every, html, strict=True)
    ]
    middle = len(prompt) + len(left)
    return {
        "prompt": turns[: len(prompt)],
        "conversation": len(prompt) > 1,
        "panes": [
            {"side": "left", "letter": "A", "turns": turns[len(prompt) : middle]},
            {"side": "right", "letter": "B", "turns": turns[middle:]},
        ],
    }


def _chosen(answered: selectors.AnsweredPair) -> str:
    """The value of the button that was pressed."""
    strength = answered.vote.strength
    return f"{answered.side}-{strength}" if strength else answered.side


def flags(chosen: Any) -> list[tuple[str, str, bool]]:
    """(name, words, set) of every flag."""
    return [(name, words, name in chosen) for name, words in FLAGS.items()]


def buttons(offers: Offers) -> list[Button]:
    """The choices in the order of the bar, with the keys that press them."""
    if offers.strength:
        left = [
            Button("left-2", "A is much better", "!", "⇧1", "a", "A much"),
            Button("left-1", "A is better", "1 a ArrowLeft", "1", "a", "A"),
        ]
        right = [
            Button("right-1", "B is better", "2 b ArrowRight", "2", "b", "B"),
            Button("right-2", "B is much better", "@", "⇧2", "b", "B much"),
        ]
    else:
        left = [Button("left", "A is better", "1 a ArrowLeft", "1", "a", "A")]
        right = [Button("right", "B is better", "2 b ArrowRight", "2", "b", "B")]
    tie = [Button("tie", "Tie", "t 0", "T", "", "Tie")] if offers.tie else []
    bad = [Button("both_bad", "Both are bad", "x", "X", "", "Both bad")] if offers.both_bad else []
    return [*left, *tie, *right, *bad]
