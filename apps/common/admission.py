"""Who is served now, who waits, and who is told to come back: the queue of one web process.

Python runs one thread of a process at a time, so many requests served at once make each other slow.
A process has many threads, most of which wait here: few are served at once, fewer of one person and
of one project, of what reads much of a project one or two, and some places are left for votes. A
download has its place until its last byte. Nobody waits in the web server's own queue, which knows
nothing of this.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from django.utils.translation import gettext

from apps.common.errors import DomainError, TooMany, Unavailable

STRANGERS = "strangers"


VOTE, PAGE, HEAVY, FILE = "vote", "page", "heavy", "file"  # kinds of requests


@dataclass(frozen=True, slots=True)
class Limits:
    """Per process. `served` requests at once, at most `others` of them no votes, `per_person` of
    one person and, votes not counted, `per_project` of one project; of what is heavy `heavy`, and
    `heavy_per_project`. `waiting` may wait, `waiting_per_person` of one person and
    `waiting_per_project` of one project, `patience` seconds. All who are not signed in count as one
    person, `STRANGERS`, of whom more may wait: on a Monday morning an office signs in. Beside them
    `files` are sent, `files_per_project` of one project: that takes a thread and no processor."""

    served: int = 6
    others: int = 4
    per_person: int = 2
    per_project: int = 2
    heavy: int = 3
    heavy_per_project: int = 1
    waiting: int = 40
    waiting_per_person: int = 10
    waiting_per_project: int = 20
    waiting_strangers: int = 24
    patience: float = 15.0
    files: int = 16
    files_per_project: int = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Of a request: whose it is, its kind, and which project it names; "" for none."""

    person: str
    kind: str = PAGE
    project: str = ""


class Admission:
    """`enter` returns a place or raises; who got one must `leave`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting = 0
        self._served: Counter[str] = Counter()
        self._in_line: Counter[str] = Counter()

    def enter(self, place: Place, *, before_waiting: Callable[[], None] = lambda: None) -> Place:
        with self._changed:
            if not self._has_room(place):
                self._wait(place, before_waiting)
            _count(self._served, self._most_served(place), 1)
        return place

    def leave(self, place: Place) -> None:
        with self._changed:
            _count(self._served, self._most_served(place), -1)
            self._changed.notify_all()

    def turn_into_file(self, place: Place) -> Place:
        """Its request is answered, by a file that is still to be sent. Raises where too many are
        sent already; the place is given back then."""
        sent = replace(place, kind=FILE)
        with self._changed:
            _count(self._served, self._most_served(place), -1)
            self._changed.notify_all()
            if full := _full(self._served, self._most_served(sent)):
                raise _refusal(sent, full)
            _count(self._served, self._most_served(sent), 1)
        return sent

    def _most_served(self, place: Place) -> dict[str, int]:
        """{what a place counts among: how many of these are served at once}."""
        limits, project = self._limits, place.project
        if place.kind == FILE:
            return {"files": limits.files, f"files of {project}": limits.files_per_project}
        most = {"all": limits.served, f"person {place.person}": limits.per_person}
        if place.kind == VOTE:
            return most
        most["others"] = limits.others
        if project:
            most[f"project {project}"] = limits.per_project
        if place.kind == HEAVY:
            most["heavy"], most[f"heavy of {project}"] = limits.heavy, limits.heavy_per_project
        return most

    def _most_in_line(self, place: Place) -> dict[str, int]:
        limits = self._limits
        stranger = place.person == STRANGERS
        most_alone = limits.waiting_strangers if stranger else limits.waiting_per_person
        most = {f"person {place.person}": most_alone}
        if place.project and place.kind != VOTE:
            most[f"project {place.project}"] = limits.waiting_per_project
        return most

    def _has_room(self, place: Place) -> bool:
        return not _full(self._served, self._most_served(place))

    def _wait(self, place: Place, before_waiting: Callable[[], None]) -> None:
        in_line = self._most_in_line(place)
        if full := _full(self._in_line, in_line):
            raise _refusal(place, full)
        # Votes are short and come one by one from each person: they may always stand in line.
        if self._waiting >= self._limits.waiting and place.kind != VOTE:
            raise _busy()
        before_waiting()
        _count(self._in_line, in_line, 1)
        self._waiting += 1
        try:
            deadline = time.monotonic() + self._limits.patience
            while full := _full(self._served, self._most_served(place)):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise _refusal(place, full)
        finally:
            self._waiting -= 1
            _count(self._in_line, in_line, -1)


def _full(now: Counter[str], most: dict[str, int]) -> list[str]:
    return [key for key, limit in most.items() if now[key] >= limit]


def _count(now: Counter[str], keys: Iterable[str], by: int) -> None:
    for key in keys:
        now[key] += by
        if not now[key]:
            del now[key]


def _refusal(place: Place, full: list[str]) -> DomainError:
    """Whose requests are too many: the person's, the project's, or all together."""
    if f"person {place.person}" in full:
        return _busy() if place.person == STRANGERS else too_many()
    if any(key.endswith(f" {place.project}") for key in full if place.project):
        return too_many_of_project()
    return _busy()


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


def too_many_of_project() -> TooMany:
    return TooMany(
        gettext("Too many requests to this project are being served. Wait for some of them to end.")
    )


def _busy() -> DomainError:
    return Unavailable(
        gettext("The server has too much to do at the moment. Try again in a few seconds.")
    )
