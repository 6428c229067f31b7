"""What is done to the parts of a site, and in which order: killed, stopped, cut off, out of disk.

A fault is over when its function returns: what was stopped runs again, what was cut off can be
reached, and the disk has room. What should follow then is the site's own doing.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.system.a_site import Site, command, kill, parent, tree, wait_for

STOPPED_SECONDS = 8.0
CUT_SECONDS = 8.0
FULL_SECONDS = 12.0
LEASE_SECONDS = 10  # of a run on a site that is to be disturbed
TAKEN_OVER_SECONDS = 30.0  # until another worker has a run whose worker is silent, and more
BUSY = 8.0  # seconds that people may wait while the site uses the processors for something else

Do = Callable[[Site, random.Random], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`away`: seconds for which people may be answered nothing, counted from its beginning; None:
    as long as this site takes to start. `takes_over`: before it ends another worker must have a
    run."""

    part: str
    how: str
    do: Do
    away: float | None = BUSY
    takes_over: bool = False


def schedule(faults: tuple[Fault, ...], seed: int) -> Iterator[Fault]:
    """For ever: in each turn every part once, in another order; a part's own faults by turns."""
    draw = random.Random(seed)
    of_part: dict[str, Iterator[Fault]] = {}
    for part in sorted({one.part for one in faults}):
        own = [one for one in faults if one.part == part]
        draw.shuffle(own)
        of_part[part] = itertools.cycle(own)
    while True:
        for part in draw.sample(sorted(of_part), len(of_part)):
            yield next(of_part[part])


# --- processes -----------------------------------------------------------------------------------

Find = Callable[[Site, random.Random], list[int]]  # the processes of a part, its parent first


def _program(*words: str) -> Find:
    return lambda site, draw: site.processes(*words)


def _one_web_server(site: Site, draw: random.Random) -> list[int]:
    found = site.processes("config.web")
    servers = [pid for pid in found if parent(pid) not in found]
    return tree(draw.choice(servers)) if servers else []


def _one_web_worker(site: Site, draw: random.Random) -> list[int]:
    found = site.processes("config.web")
    workers = [pid for pid in found if parent(pid) in found]
    return [draw.choice(workers)] if workers else []


def _one_trainer(site: Site, draw: random.Random) -> list[int]:
    found = site.processes("workers.train ")
    return [draw.choice(found)] if found else []


def _one_training_worker(site: Site, draw: random.Random) -> list[int]:
    """One that has a trainer: its main process, and the one that supervises."""
    trainer = _one_trainer(site, draw)
    return [parent(parent(trainer[0])), parent(trainer[0])] if trainer else []


def _one_other(site: Site, draw: random.Random) -> list[int]:
    name = draw.choice(["short@", "workers.scoring", "workers.answering"])
    return site.processes(name)


def _postgres(site: Site, draw: random.Random) -> list[int]:
    return tree(int((site.var / "postgres" / "postmaster.pid").read_text().split()[0]))


def _redis(site: Site, draw: random.Random) -> list[int]:
    return [int((site.var / "redis" / "redis.pid").read_text())]


def _supervisor(site: Site, draw: random.Random) -> list[int]:
    return [site.pid]


def _present(find: Find, site: Site, draw: random.Random) -> list[int]:
    """It may still be coming up from the fault before."""

    def found() -> list[int]:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return find(site, draw)
        return []

    return wait_for(found, 60, "a process to disturb")


def _killed(find: Find, *, which: int = 0) -> Do:
    def do(site: Site, draw: random.Random) -> None:
        pids = wait_for(lambda: _present(find, site, draw)[which:], 60, "a process to disturb")
        with contextlib.suppress(ProcessLookupError):
            kill(pids[0])

    return do


def _stopped(find: Find, seconds: float = STOPPED_SECONDS) -> Do:
    def do(site: Site, draw: random.Random) -> None:
        pids = _present(find, site, draw)
        try:
            _signal(pids, signal.SIGSTOP)
            time.sleep(seconds)
        finally:
            _signal(pids, signal.SIGCONT)

    return do


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# --- servers that cannot be reached --------------------------------------------------------------


def _kill_backend(site: Site, draw: random.Random) -> None:
    kill(draw.choice([pid for pid in _postgres(site, draw)[1:] if _is_session(pid)]))


def _is_session(pid: int) -> bool:
    return " concord " in command(pid)


def _cut_postgres(site: Site, draw: random.Random) -> None:
    """Every session ended, and no new one let in."""
    import psycopg

    from apps.common import embedded

    url = embedded.postgres_url(site.var, embedded.SUPERUSER, "postgres")
    with psycopg.connect(url, autocommit=True) as server:
        try:
            server.execute("alter database concord allow_connections false")
            until = time.monotonic() + CUT_SECONDS
            while time.monotonic() < until:
                server.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = 'concord'"
                )
                time.sleep(0.2)
        finally:
            server.execute("alter database concord allow_connections true")


def _cut_redis(site: Site, draw: random.Random) -> None:
    """Every connection ended, and its socket not where it is looked for."""
    import redis

    from apps.common import embedded

    socket = embedded.redis_socket(site.var)
    aside = socket.with_name("aside.sock")
    socket.rename(aside)
    try:
        with redis.Redis(unix_socket_path=str(aside), socket_timeout=5) as client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        time.sleep(CUT_SECONDS)
    finally:
        aside.rename(socket)


def _cut_store(site: Site, draw: random.Random) -> None:
    """The artifact store's folder is no folder any more, as where a mount is gone."""
    folder = Path(os.environ["ARTIFACTS_URL"])
    aside = folder.with_name("aside")
    aside.touch()
    _exchange(folder, aside)
    try:
        time.sleep(CUT_SECONDS)
    finally:
        _exchange(folder, aside)


def _exchange(one: Path, other: Path) -> None:
    """The two change names at once, so that nobody makes a folder in between."""
    call = ctypes.CDLL(None, use_errno=True).renameat2
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
        raise OSError(ctypes.get_errno(), f"cannot exchange {one} and {other}")


_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


# --- disks ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own that can be filled; a folder like others for whoever may mount
    none."""
    folder.mkdir()
    if not may_mount():
        yield folder
        return
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@functools.cache
def may_mount() -> bool:
    """Whether this process may mount a file system: as root, and in few containers."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
            check=False,
            capture_output=True,
        )
        if tried.returncode:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _full(disk: Callable[[Site], Path], seconds: float = FULL_SECONDS) -> Do:
    def do(site: Site, draw: random.Random) -> None:
        ballast = disk(site) / "ballast"
        until = time.monotonic() + seconds
        try:
            with ballast.open("wb", buffering=0) as file:
                while time.monotonic() < until:  # what others delete meanwhile is filled too
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(b"\0" * 1_000_000)
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(b"\0" * 4096)
                    time.sleep(0.2)
        finally:
            ballast.unlink(missing_ok=True)

    return do


def _disk_of_files(site: Site) -> Path:
    return Path(os.environ["ARTIFACTS_URL"]).parent


_EVENTS, _IMPORTS = _program("celery", "events@"), _program("celery", "imports@")
_BEAT = _program("celery", "beat")
_HELD = STOPPED_SECONDS + BUSY

FAULTS = (
    Fault("web worker", "killed", _killed(_one_web_worker)),
    Fault("web worker", "stopped", _stopped(_one_web_worker), _HELD),
    Fault("web server", "killed", _killed(_one_web_server), 15),
    Fault("web server", "stopped", _stopped(_one_web_server), _HELD),
    Fault("event streams", "killed", _killed(_program("config.asgi"))),
    Fault("event streams", "stopped", _stopped(_program("config.asgi"))),
    Fault("event worker", "killed", _killed(_EVENTS)),
    Fault("event worker", "pool killed", _killed(_EVENTS, which=1)),
    Fault("event worker", "stopped", _stopped(_EVENTS)),
    Fault("import worker", "killed", _killed(_IMPORTS)),
    Fault("import worker", "pool killed", _killed(_IMPORTS, which=1)),
    Fault("import worker", "stopped", _stopped(_IMPORTS)),
    Fault("scheduler", "killed", _killed(_BEAT)),
    Fault("scheduler", "stopped", _stopped(_BEAT)),
    Fault("training worker", "killed", _killed(_one_training_worker)),
    Fault("training worker", "stopped", _stopped(_one_training_worker)),
    Fault(
        "training worker",
        "stopped beyond its lease",
        _stopped(_one_training_worker, LEASE_SECONDS + TAKEN_OVER_SECONDS),
        takes_over=True,
    ),
    Fault("trainer", "killed", _killed(_one_trainer)),
    Fault("trainer", "stopped", _stopped(_one_trainer)),
    Fault("other workers", "killed", _killed(_one_other)),
    Fault("other workers", "stopped", _stopped(_one_other)),
    Fault("PostgreSQL", "killed", _killed(_postgres), 15),
    Fault("PostgreSQL", "session killed", _kill_backend, 15),
    Fault("PostgreSQL", "stopped", _stopped(_postgres), _HELD + 7),
    Fault("PostgreSQL", "cut off", _cut_postgres, CUT_SECONDS + 15),
    Fault("Redis", "killed", _killed(_redis), 10),
    Fault("Redis", "stopped", _stopped(_redis), _HELD),
    Fault("Redis", "cut off", _cut_redis, CUT_SECONDS + BUSY),
    Fault("supervisor", "killed", _killed(_supervisor), None),
    Fault("supervisor", "stopped", _stopped(_supervisor)),
    Fault("artifact store", "cut off", _cut_store),
)
ON_DISKS = (
    Fault("disk of the database", "full", _full(lambda site: site.var.parent), FULL_SECONDS + 30),
    Fault("disk of files", "full", _full(_disk_of_files)),
)
