"""`python -m config.web …`: granian, with granian's arguments.

The application is loaded once, before the processes are forked, so they share its memory and one
that is replaced serves at once. A process that granian loses, because granian was killed, ends too:
else it would hold the port.
"""

import os
import signal

from granian.cli import entrypoint

import config.wsgi  # noqa: F401 - what is shared
from apps.common.processes import signal_at_parents_death

if __name__ == "__main__":
    os.register_at_fork(after_in_child=lambda: signal_at_parents_death(signal.SIGKILL))
    entrypoint()
