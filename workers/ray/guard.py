"""`python guard.py COMMAND…`: runs it, and ends its whole process group when it ends or when
standard input closes.

Ray's agents outlive a killed raylet by a minute, in which they try to tell a dead server about it.
Whoever holds the other end of our standard input, and dies however it may, leaves nothing behind.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Must lead a process group of its own."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=_watch, daemon=True).start()
    child.wait()
    _end_all()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    _end_all()


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
