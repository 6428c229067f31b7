"""Who is served now, who waits, and who is told to come back: the queue of one web process.

Python runs one thread of a process at a time, so many requests served at once make each other slow.
A process has many threads, most of which wait here: few are served at once, fewer of one person,
and some places are left for votes. Nobody waits in the web server's own queue, which knows neither.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from django.utils.translation import gettext

from apps.common.errors import DomainError, TooMany, Unavailable

STRANGERS = "strangers"


@dataclass(frozen=True, slots=True)
class Limits:
    """Per process. `served` requests at once, at most `others` of them no votes and `per_person`
    of one person; `waiting` may wait, `waiting_per_person` of one person, `patience` seconds. All
    who are not signed in count as one person, `STRANGERS`, of whom more may wait: on a Monday
    morning an office signs in."""

    served: int = 6
    others: int = 4
    per_person: int = 2
    waiting: int = 40
    waiting_per_person: int = 10
    waiting_strangers: int = 24
    patience: float = 15.0


@dataclass(frozen=True, slots=True)
class Place:
    person: str
    is_vote: bool


class Admission:
    """`enter` returns a place or raises; who got one must `leave`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._votes = self._others = self._waiting = 0
        self._served: Counter[str] = Counter()
        self._in_line: Counter[str] = Counter()

    def enter(
        self, person: str, *, is_vote: bool, before_waiting: Callable[[], None] = lambda: None
    ) -> Place:
        place = Place(person, is_vote)
        with self._changed:
            if not self._has_room(place):
                self._wait(place, before_waiting)
            self._count(place, 1)
        return place

    def leave(self, place: Place) -> None:
        with self._changed:
            self._count(place, -1)
            self._changed.notify_all()

    def _count(self, place: Place, by: int) -> None:
        self._served[place.person] += by
        if not self._served[place.person]:
            del self._served[place.person]
        if place.is_vote:
            self._votes += by
        else:
            self._others += by

    def _has_room(self, place: Place) -> bool:
        limits = self._limits
        if self._served[place.person] >= limits.per_person:
            return False
        if self._votes + self._others >= limits.served:
            return False
        return place.is_vote or self._others < limits.others

    def _wait(self, place: Place, before_waiting: Callable[[], None]) -> None:
        limits = self._limits
        stranger = place.person == STRANGERS
        most = limits.waiting_strangers if stranger else limits.waiting_per_person
        if self._in_line[place.person] >= most:
            raise _busy() if stranger else too_many()
        # Votes are short and come one by one from each person: they may always stand in line.
        if self._waiting >= limits.waiting and not place.is_vote:
            raise _busy()
        before_waiting()
        self._in_line[place.person] += 1
        self._waiting += 1
        try:
            deadline = time.monotonic() + limits.patience
            while not self._has_room(place):
                if not self._changed.wait(deadline - time.monotonic()):
                    mine = self._served[place.person] >= limits.per_person
                    raise too_many() if mine and not stranger else _busy()
        finally:
            self._waiting -= 1
            self._in_line[place.person] -= 1
            if not self._in_line[place.person]:
                del self._in_line[place.person]


class Floods:
    """Requests under way by what they show as their credential, known or not: at most `most`.

    Counted before anything is looked up, so that refusing hundreds costs the others nothing.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()

    def enter(self, credential: str) -> bool:
        with self._lock:
            if self._under_way[credential] >= self._most:
                return False
            self._under_way[credential] += 1
            return True

    def leave(self, credential: str) -> None:
        with self._lock:
            self._under_way[credential] -= 1
            if not self._under_way[credential]:
                del self._under_way[credential]


def too_many() -> TooMany:
    return TooMany(
        gettext("Too many requests of yours are being served. Wait for some of them to end.")
    )


def _busy() -> DomainError:
    return Unavailable(
        gettext("The server has too much to do at the moment. Try again in a few seconds.")
    )
