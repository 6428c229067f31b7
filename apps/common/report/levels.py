"""One scale of how bad a finding is, with its colour, icon and word: ok, notice, bad, unknown."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """UNKNOWN: these data cannot tell, which is never a yes."""

    BAD = "bad"
    NOTICE = "notice"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Look:
    level: Level
    tone: str  # a class of the stylesheet
    icon: str
    word: str


WORST_FIRST = tuple(Level)
LOOKS = {
    look.level: look
    for look in (
        Look(Level.BAD, "bad", "circle-alert", "Bad"),
        Look(Level.NOTICE, "warn", "triangle-alert", "Notice"),
        Look(Level.UNKNOWN, "", "circle-help", "Unknown"),
        Look(Level.OK, "good", "circle-check", "OK"),
    )
}
# What reports are stored with, by whoever measured.
_STORED = {str(level): level for level in Level} | {
    "stop": Level.BAD,
    "block": Level.BAD,
    "red": Level.BAD,
    "critical": Level.BAD,
    "confirms": Level.BAD,
    "look": Level.NOTICE,
    "warn": Level.NOTICE,
    "unsure": Level.NOTICE,
    "green": Level.OK,
    "no_alarm": Level.OK,
    "refutes": Level.OK,
    "scored": Level.OK,
}


def level_of(stored: str) -> Level:
    """Of a word that is not known: UNKNOWN."""
    return _STORED.get(stored, Level.UNKNOWN)


def look_of(stored: str) -> Look:
    return LOOKS[level_of(stored)]
