"""How much of a machine one project may have at once, over all web processes.

A process limits by what an address names (apps/common/admission.py), before anything is looked up.
Here it is known that the person belongs to the project, so nobody takes places of a project that is
not theirs. Votes need no place.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from contextvars import ContextVar

from apps.common import rates
from apps.common.admission import HEAVY, VOTE, too_many_of_project
from apps.common.slots import slot_taken

log = logging.getLogger(__name__)
CORES = os.cpu_count() or 1
MOST_PAGES = max(2, CORES // 2)  # of a project on the machine; 0: not counted
MOST_HEAVY = max(1, CORES // 4)
PATIENCE_S = 15.0


class Turn:
    """A request's place on the machine, from when its project is known until it is answered."""

    def __init__(self, kind: str, *, before_waiting: Callable[[], None] = lambda: None) -> None:
        self.kind = kind
        self._before_waiting = before_waiting
        self._file: int | None = None
        self._projects: set[int] = set()

    def take(self, *, person: int, project: int) -> None:
        """Raises `TooMany` where the person or the project asks for too much. A request that goes
        through several checks of the same project is counted once, and has one place."""
        if self.kind == VOTE or project in self._projects:
            return
        self._projects.add(project)
        if self.kind == HEAVY:
            rates.take_heavy(person=person, project=project)
        most = MOST_HEAVY if self.kind == HEAVY else MOST_PAGES
        if self._file is not None or not most:
            return
        name = f"{self.kind}-{project}"
        try:
            self._file = slot_taken(
                name, most, wait=PATIENCE_S, before_waiting=self._before_waiting
            )
        except OSError as error:  # such as a full disk, on which pages still work
            log.warning("places of the machine are not counted: %s", error)
            return
        if self._file is None:
            raise too_many_of_project()

    def give_back(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


_turn: ContextVar[Turn | None] = ContextVar("turn", default=None)


def turn_begin(turn: Turn) -> None:
    """The request of this thread has this turn, until `turn_end`."""
    _turn.set(turn)


def turn_end() -> None:
    _turn.set(None)


def project_known(*, person: int, project: int) -> None:
    """Once it is known that a person may do in a project what they ask for."""
    if (turn := _turn.get()) is not None:
        turn.take(person=person, project=project)
