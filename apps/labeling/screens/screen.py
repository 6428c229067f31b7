"""What the label screen shows, prepared for its template.

Nothing of an answer's origin and nothing of other votes comes through here: the template cannot
show what it is not given.
"""

from dataclasses import dataclass
from typing import Any, TypedDict

from apps.accounts.models import Project, User
from apps.common.registry import vote_uses
from apps.labeling import selectors
from apps.labeling.forms import CRITERION
from apps.labeling.screens import reasons
from apps.labeling.screens.panes import pair_shown
from apps.labeling.services import FLAGS, Lease, NothingReason, Offers
from apps.labeling.services.results import Criterion

SKIP_REASONS = (
    "Not my subject",
    "Prompt is unclear",
    "A language I do not read",
    "Something is broken or cut off",
)


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence above the pair; `tone` is a note's class."""

    text: str
    tone: str = "warn"
    icon: str = "triangle-alert"


class Given(TypedDict, total=False):
    """What a person has entered so far, by the names of the form; criteria in sides."""

    answer: str
    criteria: dict[str, str]
    reasons: list[str]
    rationale: str
    flags: list[str]
    improvement: str


@dataclass(frozen=True, slots=True)
class Tick:
    """One of the three answers to a criterion."""

    value: str
    letter: str
    key: str
    tone: str
    is_set: bool


@dataclass(frozen=True, slots=True)
class CriterionRow:
    name: str  # of the form's field
    label: str
    ticks: list[Tick]


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
    typed: Given | None = None,
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
        "back_to": back_to,
    }
    if isinstance(got, NothingReason):
        more = reasons.context_of(got, project=project, annotator=annotator)
        return common | more | {"nothing": got, "n_today": got.n_today}
    shown = pair_shown(got.prompt, got.left, got.right)
    if isinstance(got, selectors.AnsweredPair):
        offers = Offers.of(selectors.settings_get(project=project))
        given = _given(got) | (typed or {})
        return common | shown | ballot(offers, given) | {
            "editing": got,
            "ballot_id": f"vote-{got.vote.pk}",
            "key": f"revise.{got.vote.pk}.{got.vote.revision + 1}",
            "frozen_in": vote_uses([got.vote.pk]).get(got.vote.pk, 0),
        }  # fmt: skip
    return common | shown | ballot(got.offers, typed or {}) | {
        "lease": got,
        "ballot_id": f"slot-{got.slot}",
        "number": got.n_today + 1,
        "n_today": got.n_today,
        "remaining": selectors.remaining_for(
            project=project, annotator=annotator, n_today=got.n_today
        ),
        "remaining_cap": selectors.REMAINING_CAP,
        "key": got.key,
        "skip_reasons": SKIP_REASONS,
    }  # fmt: skip


def ballot(offers: Offers, given: Given) -> dict[str, Any]:
    """What the project asks about a pair, with what was given so far in its place."""
    reasons = given.get("reasons", ())
    return {
        "offers": offers,
        "buttons": buttons(offers),
        "chosen": given.get("answer", ""),
        "criteria": [_row(criterion, given) for criterion in offers.criteria],
        "reasons": [(reason, reason in reasons) for reason in offers.reasons],
        "flags": flags(given.get("flags", ())),
        "given": given,
    }


def _row(criterion: Criterion, given: Given) -> CriterionRow:
    chosen = given.get("criteria", {}).get(criterion.key)
    return CriterionRow(
        f"{CRITERION}{criterion.key}",
        criterion.label,
        [
            Tick(value, letter, key, tone, value == chosen)
            for value, letter, key, tone in (
                ("left", "A", "1", "a"),
                ("tie", "Tie", "0", ""),
                ("right", "B", "2", "b"),
            )
        ],
    )


def _given(answered: selectors.AnsweredPair) -> Given:
    """A stored answer as the form would have sent it."""
    vote = answered.vote
    mirrored = vote.left_is == "b"  # an imported vote may not know: then A stands left
    sides = {"a": "right" if mirrored else "left", "b": "left" if mirrored else "right"}
    return Given(
        answer=f"{answered.side}-{vote.strength}" if vote.strength else answered.side,
        criteria={key: sides.get(choice, choice) for key, choice in vote.criteria.items()},
        reasons=vote.reasons,
        rationale=vote.rationale,
        flags=vote.flags,
        improvement=vote.improvement.messages[-1]["content"] if vote.improvement else "",
    )


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
