"""What the rating screen shows, prepared for its template.

Nothing of an answer's origin and nothing of other ratings comes through here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from apps.labeling.forms import LETTERS
from apps.labeling.models import Answer
from apps.labeling.screens.label import SKIP_REASONS, Turn, turns_of
from apps.labeling.selectors.ratings import responses_of
from apps.labeling.services import LONGEST_RATIONALE
from apps.labeling.services.results import Lease, Scale
from measures.messages import Messages


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A grade or rank of one card; `key` is the digit that chooses it, where one does."""

    value: int
    key: str
    is_set: bool


@dataclass(frozen=True, slots=True)
class Card:
    number: int
    letter: str
    turns: list[Turn]
    points: list[ScalePoint]


def context(
    got: Lease,
    *,
    notice: str = "",
    typed: Sequence[int | None] = (),
    note: str = "",
) -> dict[str, Any]:
    """The context of `rating.html`: a task to rate.

    typed, note: what the person had entered, given back when it could not be stored.
    """
    common = {
        "page_title": gettext("Label"),
        "nav": "label",
        "notice": notice,
        "n_today": got.n_today,
    }
    return (
        common
        | cards_shown(got.prompt, got.responses, got.scale, typed)
        | {
            "lease": got,
            "answer_id": f"rating-{got.slot}",
            "key": got.key,
            "note": note,
            "number": got.n_today + 1,
            "skip_reasons": SKIP_REASONS,
        }
    )


def context_of_change(
    rating: Answer, *, notice: str = "", typed: Sequence[int | None] = (), note: str | None = None
) -> dict[str, Any]:
    """The same for a rating of one's own, in the order it was shown then."""
    messages = {item.position: item.response.brief for item in responses_of(rating.task)}
    values = typed or [rating.values[place - 1] for place in rating.shown]
    answers = [messages[place] for place in rating.shown]
    scale = Scale.of(rating.task)
    return cards_shown(rating.task.prompt.brief, answers, scale, values) | {
        "page_title": gettext("Change your rating"),
        "nav": "label",
        "notice": notice,
        "editing": rating,
        "answer_id": f"rated-{rating.pk}",
        "key": f"revise-rating.{rating.pk}.{rating.revision + 1}",
        "note": rating.rationale if note is None else note,
    }


def cards_shown(
    prompt: Messages,
    responses: Sequence[Messages],
    scale: Scale,
    values: Sequence[int | None] = (),
) -> dict[str, Any]:
    """Prompt and one card for each response."""
    turns = turns_of([prompt, *responses])
    given = list(values) or [None] * len(responses)
    return {
        "scale": scale,
        "prompt": turns[0],
        "conversation": len(turns[0]) > 1,
        "longest_note": LONGEST_RATIONALE,
        "cards": [
            Card(number, LETTERS[number - 1], shown, _points(scale, value))
            for number, (shown, value) in enumerate(zip(turns[1:], given, strict=True), start=1)
        ],
    }


def _points(scale: Scale, chosen: int | None) -> list[ScalePoint]:
    return [ScalePoint(value, _key(value, scale), value == chosen) for value in scale.points]


def _key(value: int, scale: Scale) -> str:
    """The digit itself; 0 stands for 10 where no 0 can be given."""
    if value == 10 and scale.low > 0:
        return "0"
    return str(value) if 0 <= value <= 9 else ""
