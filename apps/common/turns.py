"""How much of a machine one project may have at once, over all web processes.

A process limits by what an address names (apps/common/admission.py), before anything is looked up.
Here it is known that the person belongs to the project, so nobody takes places of a project that is
not theirs. Votes need no place; while people vote in other projects, a project has fewer for its
pages.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

from apps.common import rates
from apps.common.admission import HEAVY, VOTE, too_many_of_project
from apps.common.scratch import scratch_dir
from apps.common.slots import slot_taken

log = logging.getLogger(__name__)
CORES = os.cpu_count() or 1
MOST_PAGES = max(2, CORES // 2)  # of a project on the machine; 0: not counted
MOST_BESIDE_VOTES = max(1, CORES // 4)  # of its pages, while people vote in another project
MOST_HEAVY = max(1, CORES // 4)
PATIENCE_S = 15.0
VOTES_LAST_S = 5.0  # how long after a vote its project counts as one in which people vote


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
        if project in self._projects:
            return
        self._projects.add(project)
        if self.kind == VOTE:
            voted(project)
            return
        if self.kind == HEAVY:
            rates.take_heavy(person=person, project=project)
        if self._file is not None or not MOST_PAGES:
            return
        try:
            most = MOST_HEAVY
            if self.kind != HEAVY:
                most = MOST_BESIDE_VOTES if others_vote(project) else MOST_PAGES
            name = f"{self.kind}-{project}"
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


_told: dict[int, float] = {}  # project -> when this process last said that people vote in it


def voted(project: int) -> None:
    """Tell the other processes of the machine that people vote in a project, once a second."""
    now = time.monotonic()
    if now - _told.get(project, -1.0) < 1.0:
        return
    _told[project] = now
    with contextlib.suppress(OSError):
        (_voting() / str(project)).touch()


def others_vote(project: int) -> bool:
    """Whether people of the machine voted in another project just now."""
    since = time.time() - VOTES_LAST_S
    # It may be swept meanwhile.
    with contextlib.suppress(FileNotFoundError), os.scandir(_voting()) as entries:
        return any(e.stat().st_mtime >= since for e in entries if e.name != str(project))
    return False


def _voting() -> Path:
    folder = scratch_dir() / ".voting"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


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
