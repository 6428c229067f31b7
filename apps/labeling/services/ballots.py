"""What an annotator says about a pair, checked before anything is stored."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypedDict, Unpack

from apps.common.errors import DomainError, Refused
from apps.labeling.models import Choice
from apps.labeling.services.results import Offers
from apps.labeling.texts import MOST_CHARACTERS

SIDES = ("left", "right", "tie", "both_bad")
FLAGS = {
    "unsafe": "Unsafe content",
    "personal_data": "Personal data",
    "wrong_language": "Wrong language",
    "prompt_unclear": "Prompt unclear",
    "model_revealed": "Names its model",
    "rendering_broken": "Shown broken",
}
LONGEST_RATIONALE = 4000
CRITERION_CHOICES = ("left", "tie", "right")
SLIGHTLY, MUCH = 1, 2
_LONGEST_TIME = timedelta(days=7) // timedelta(milliseconds=1)


class Answer(TypedDict, total=False):
    """What the vote services take as keyword arguments.

    Either `choice` (canonical: a, b, tie, both_bad) or `side` (as seen: left, right, tie,
    both_bad) is given, and `criteria` in the same terms: {criterion: a | tie | b} beside a choice,
    {criterion: left | tie | right} beside a side. Strength is 1 (slightly) or 2 (much).
    `improvement` is the better answer as the annotator would have it. Times are milliseconds:
    `wall_ms` since the pair appeared, `active_ms` without pauses of a minute or more; both are
    bounded by what the server knows.
    """

    choice: str
    side: str
    strength: int | None
    rationale: str
    reasons: list[str]
    flags: list[str]
    criteria: dict[str, str]
    improvement: str
    active_ms: int | None
    wall_ms: int | None


def ballot_from(**answer: Unpack[Answer]) -> "Ballot":
    """The answer as a checked ballot; errors name the field."""
    tidy = dict(answer)
    tidy["rationale"] = answer.get("rationale", "").strip()
    for name in ("flags", "reasons"):
        tidy[name] = list(dict.fromkeys(answer.get(name, ())))
    tidy["improvement"] = answer.get("improvement", "").strip()
    return Ballot(**tidy)


@dataclass(frozen=True, slots=True)
class Ballot:
    """An `Answer` that has passed the checks."""

    choice: str = ""
    side: str = ""
    strength: int | None = None
    rationale: str = ""
    reasons: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    criteria: dict[str, str] = field(default_factory=dict)
    improvement: str = ""
    active_ms: int | None = None
    wall_ms: int | None = None

    def __post_init__(self) -> None:
        if bool(self.choice) == bool(self.side):
            raise DomainError("Give either a choice or a side.", field="choice")
        if self.choice and self.choice not in Choice.values:
            raise DomainError(
                f"The choice {self.choice!r} is unknown; one of {', '.join(Choice.values)}.",
                field="choice",
            )
        if self.side and self.side not in SIDES:
            raise DomainError(
                f"The side {self.side!r} is unknown; one of {', '.join(SIDES)}.", field="side"
            )
        if self.strength not in (None, SLIGHTLY, MUCH):
            raise DomainError("The strength is 1 (slightly) or 2 (much).", field="strength")
        if self.strength is not None and (self.choice or self.side) in ("tie", "both_bad"):
            raise DomainError("Only A or B can be better by a strength.", field="strength")
        if len(self.rationale) > LONGEST_RATIONALE:
            raise DomainError(f"At most {LONGEST_RATIONALE:,} characters.", field="rationale")
        if len(self.improvement) > MOST_CHARACTERS:
            raise DomainError(f"At most {MOST_CHARACTERS:,} characters.", field="improvement")
        for name in ("rationale", "improvement"):
            if "\x00" in getattr(self, name):
                raise DomainError("A NUL character cannot be stored.", field=name)
        if self.improvement and (self.choice or self.side) in ("tie", "both_bad"):
            raise DomainError(
                "Say which answer is better to improve it, or leave the improvement out.",
                field="improvement",
            )
        allowed = CRITERION_CHOICES if self.side else ("a", "tie", "b")
        for name, value in self.criteria.items():
            if value not in allowed:
                raise DomainError(
                    f"The criterion {name!r} is {value!r}; one of {', '.join(allowed)}.",
                    field="criteria",
                )
        if unknown := sorted(set(self.flags) - set(FLAGS)):
            raise DomainError(
                f"Unknown flag {unknown[0]!r}; one of {', '.join(FLAGS)}.", field="flags"
            )
        for name in ("active_ms", "wall_ms"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _LONGEST_TIME:
                raise DomainError("Milliseconds, at most seven days of them.", field=name)

    def canonical(self, left_is: str) -> str:
        """The choice in terms of the stored responses, given which of them stood left."""
        if self.choice:
            return self.choice
        if self.side == "left":
            return left_is
        if self.side == "right":
            return "b" if left_is == "a" else "a"
        return self.side

    def canonical_criteria(self, left_is: str) -> dict[str, str]:
        """The criteria in terms of the stored responses."""
        if self.choice:
            return self.criteria
        names = {"left": left_is, "right": "b" if left_is == "a" else "a", "tie": "tie"}
        return {key: names[value] for key, value in self.criteria.items()}


def offered_check(ballot: Ballot, choice: str, offers: Offers) -> None:
    """What an annotator of this project may and must say; errors name the field.

    Not asked of imported votes: they were cast under other rules.
    """
    if choice == "tie" and not offers.tie:
        raise Refused("This project does not offer ties.", field="choice")
    if choice == "both_bad" and not offers.both_bad:
        raise Refused("This project does not offer “both are bad”.", field="choice")
    if ballot.improvement and not offers.improve:
        raise Refused("This project does not take improved answers.", field="improvement")
    known = {criterion.key: criterion.label for criterion in offers.criteria}
    if unknown := sorted(set(ballot.criteria) - set(known)):
        raise DomainError(f"There is no criterion {unknown[0]!r}.", field="criteria")
    if unknown := [reason for reason in ballot.reasons if reason not in offers.reasons]:
        raise DomainError(f"There is no reason {unknown[0]!r} to choose.", field="reasons")
    if offers.require_rationale and not (ballot.reasons or ballot.rationale):
        raise DomainError("Say why: choose a reason or write one.", field="rationale")
    missing = [label for key, label in known.items() if key not in ballot.criteria]
    if offers.require_criteria and missing:
        raise DomainError(f"Judge “{missing[0]}” too.", field="criteria")


def times_bounded(
    active_ms: int | None, wall_ms: int | None, *, held_ms: int
) -> tuple[int | None, int | None]:
    """(active, wall) that fit: nobody looked at a pair for longer than they held it."""
    wall = None if wall_ms is None else min(wall_ms, held_ms)
    active = None if active_ms is None else min(active_ms, held_ms if wall is None else wall)
    return active, wall
