"""Sending beside the tasks, not in them.

The house queue shares its one process with the events of all trainers, and a receiver that does not
answer costs seconds. So the task only wakes a thread of its process, which sends until nothing is
due. If the process ends meanwhile, what the thread had claimed is due again after its lease.
"""

import logging
import threading

from django.db import connections

from apps.monitoring.services.deliveries import deliveries_send

log = logging.getLogger(__name__)


class Sender:
    """At most one thread at a time; whoever asks while it works is served by it before it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        with self._lock:
            self._wanted = True
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it was done within the time."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        try:
            while self._goes_on():
                try:
                    deliveries_send()
                except Exception:  # the database is away: the beat wakes us again
                    log.exception("messages could not be sent")
        finally:
            connections.close_all()  # this thread's own

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._wanted:
                self._thread = None  # under the lock, so nobody relies on a thread about to end
            going, self._wanted = self._wanted, False
            return going


sender = Sender()
