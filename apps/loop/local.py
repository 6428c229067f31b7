"""The worker processes that a headless circle needs, where nobody runs them already."""

import sys
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from apps.common import health, processes

# Program of `processes.programs` → the parts of health.PARTS that it is.
NEEDED = {
    "events": ("event worker", "default worker"),
    "imports": ("imports worker", "statistics worker"),
    "scheduler": ("scheduler",),
    "train": ("training worker",),
}


class LocalWorkers:
    """Starts what is missing and keeps it running; leaves alone what others run.

    Use it from one thread: children end when the thread that started them does. Their output goes
    to VAR_DIR/logs.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        wanted = processes.programs(port=settings.PORT, log_level=settings.LOG_LEVEL)
        self._programs = {p.name: p for p in wanted if p.name in NEEDED}
        self._own: set[str] = set()
        self._supervisor = processes.Supervisor(
            [], logs=Path(settings.VAR_DIR) / "logs", echo=self._echo
        )

    def _echo(self, name: str, line: str) -> None:
        if name == "concord":  # the supervisor itself: something ended
            self._say(line)

    def ensure(self) -> None:
        """Start each program of which a part gives no sign of life and which is not ours."""
        for name, program in self._programs.items():
            if name not in self._own and any(health.part(part) for part in NEEDED[name]):
                self._own.add(name)
                self._supervisor.add(program)
                self._say(f"started {name} (log in {settings.VAR_DIR}/logs/{name}.log)")

    def tick(self) -> None:
        """Start again what ended, and what others stopped running. About once a second."""
        self.ensure()
        self._supervisor.tick()

    def stop(self) -> None:
        if self._own:
            self._say("stopping the workers")
            sys.stdout.flush()
        self._supervisor.shut_down()
