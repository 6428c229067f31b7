"""What the trainer's process prints, followed in its output file and reported as log lines.

Libraries warn on standard error and progress bars draw there; people want to see it while the run
goes. The supervisor points the process's output at a file beside its events, so that what a crash
prints last is there too; this thread reads that file. Bounded in lines a look, in characters a line
and in bytes an attempt: a loop that prints fills the file, not the database.
"""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from workers.contract.events import OUTPUT, Event, Log
from workers.redaction import redacted

OUTPUT_FILE = "trainer.log"
EVERY_S = 1.0
MOST_LINES = 50  # of a look; the newest
LONGEST_LINE = 1_000  # characters
MOST_BYTES = 500_000  # of an attempt
_BLOCK = 200_000
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class Printed:
    """Follows `path` in a thread and hands `Log` events to `write`; a file that is not there, as
    when a person starts a trainer by hand, is no output."""

    def __init__(self, path: Path, write: Callable[[Event], None]) -> None:
        self._path, self._write = path, write
        self._offset = self._sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="printed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Report what is left; afterwards nothing more is written."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self.look(last=True)

    def _follow(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                self.look()
            except OSError:  # a full disk ends the run where it reports its steps
                return

    def look(self, *, last: bool = False) -> None:
        """Report the lines that were printed since. `last`: also one that has no end yet."""
        if self._sent >= MOST_BYTES:
            return
        try:
            with self._path.open("rb") as file:
                start = max(self._offset, file.seek(0, os.SEEK_END) - _BLOCK)
                file.seek(start)
                block = file.read(_BLOCK)
        except FileNotFoundError:
            return
        end = len(block) if last or len(block) == _BLOCK else block.rfind(b"\n") + 1
        skipped = start > self._offset
        self._offset = start + end
        printed = block[:end].decode(errors="replace").split("\n")
        found = [line for line in printed if line.strip()]
        skipped = skipped or len(found) > MOST_LINES
        lines = [line for line in map(_shown, found[-MOST_LINES:]) if line.strip()]
        if not lines:
            return
        if skipped:
            lines.insert(0, "[… lines left out: too many at once]")
        self._sent += sum(len(line.encode()) for line in lines)
        if self._sent >= MOST_BYTES:
            lines.append(f"[the rest is in {OUTPUT_FILE} of the run's folder alone]")
        self._write(Log(lines=lines, level=OUTPUT))


def _shown(line: str) -> str:
    """Of a progress bar what it showed last."""
    text = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    return redacted(text, os.environ)[:LONGEST_LINE]
