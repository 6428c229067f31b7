"""Stops the embedded servers of a folder when their last user was killed.

`python -m apps.common.embedded FOLDER` is started once per folder beside the servers. It waits for
the users' lock, so it costs nothing while it runs.
"""

import os
import subprocess
import sys
from pathlib import Path

from apps.common import environment as env
from apps.common.embedded.locks import UsersLock, held
from apps.common.embedded.postgres import stop_postgres
from apps.common.embedded.redis_server import stop_redis

_LOCK = "servers.watch"


def ensure_watched(folder: Path) -> None:
    """Start the process unless it runs."""
    with (folder / _LOCK).open("a") as lock:
        if not held(lock):
            return
    subprocess.Popen(
        [sys.executable, "-m", "apps.common.embedded", str(folder)],
        cwd=env.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and a killed terminal are not for it
    ).returncode = 0  # it outlives this process: no ResourceWarning about that


def watch(folder: Path) -> None:
    os.chdir("/")
    with (folder / _LOCK).open("a") as lock:
        if not held(lock):
            return
        with UsersLock(folder) as users:
            users.wait_until_unused()
            if (folder / _LOCK).exists():  # else the folder was removed, as tests do
                stop_redis(folder)
                stop_postgres(folder)
