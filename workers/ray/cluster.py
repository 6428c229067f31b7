"""The Ray cluster of a run: the one that RAY_ADDRESS names, or one of its own on this machine.

A cluster of its own is the daemons of `ray start --head`, started as a child in a session of its
own: a SIGTERM to the trainer's process group asks the trainer to save and must not take its actors
away. It listens on loopback only, demands a token that exists nowhere but in the environment of
this run's processes, has no dashboard and reports no usage. It dies with the trainer, `kill -9`
included: guard.py holds it, and sees the trainer's end of a pipe close.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self

from workers.contract.events import Fault, RecipeError

ADDRESS_VARIABLE = "RAY_ADDRESS"
LOOPBACK = "127.0.0.1"
STARTED = b"Ray runtime started"
STARTS = 3
START_S = 180.0
JOIN_S = 10.0
END_S = 20.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108, where Ray keeps objects
LEAST_STORE = 128 * 2**20  # bytes; Ray refuses less than 75 MiB
# Read by Ray when it is imported; the last makes it use the loopback address on Linux too. Where
# usage is not to be reported, Ray reports just that to its makers once; the address takes it away.
_OWN = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": f"http://{LOOPBACK}:9/",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def alone() -> None:
    """What this process and its children must know before Ray is imported, to keep to
    themselves."""
    os.environ.update(_OWN)
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def import_ray() -> ModuleType:
    """Raises `RecipeError` (missing_package) where it is not installed."""
    # An actor without a GPU sees none; Ray warns that this will change unless it is told to.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # never a cluster that nobody asked for
    try:
        import ray
    except ModuleNotFoundError as error:
        raise RecipeError(
            "missing_package",
            Fault.MACHINE,
            "rollout_workers and reward_workers need Ray, which this machine lacks: "
            "pip install 'concord-server[ray]', or set both to 0.",
        ) from error
    return ray


@dataclass(slots=True)
class Cluster:
    """A connection; `head` is the child that holds the daemons, None where we only joined."""

    ray: ModuleType
    head: "subprocess.Popen[bytes] | None" = None
    folder: Path | None = None  # short, of our own; holds a link into the run's folder

    @classmethod
    def open(cls, workdir: Path, *, actors: int, gpus: float = 0.0, store: int = 0) -> Self:
        """Join, or start one with room for `actors` (a processor each), `gpus` and `store` bytes of
        objects. Raises `RecipeError` (ray_unavailable) where neither works."""
        address = os.environ.get(ADDRESS_VARIABLE, "")
        if address:
            cluster = cls(import_ray())
            cluster._connect(address)
            return cluster
        alone()
        ray = import_ray()
        head, folder, address = start_head(workdir, actors=actors, gpus=gpus, store=store)
        cluster = cls(ray, head, folder)
        try:
            cluster._connect(address)
        except BaseException:
            cluster.close()
            raise
        return cluster

    def _connect(self, address: str) -> None:
        # `ray.init` puts a handler of its own on SIGTERM, which would end the trainer unsaved.
        with _kept_handler():
            try:
                _answers(address)
                self.ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level="ERROR",
                    namespace=f"concord-{os.getpid()}",
                )
            except Exception as error:  # Ray raises plain ones too
                raise RecipeError(
                    "ray_unavailable",
                    Fault.MACHINE,
                    f"The Ray cluster at {address} cannot be joined: {error}".splitlines()[0],
                ) from error

    def close(self) -> None:
        """Leave; a cluster of our own ends."""
        with contextlib.suppress(Exception):
            self.ray.shutdown()
        if self.head is not None:
            _end(self.head)
            self.head = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def _answers(address: str) -> None:
    """Raises `OSError` where nobody listens there: `ray.init` would wait for ever. An address that
    names no port ("auto") is Ray's to find."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=JOIN_S).close()


def start_head(
    workdir: Path, *, actors: int, gpus: float, store: int
) -> "tuple[subprocess.Popen[bytes], Path, str]":
    """(child, short folder, address) of daemons that have started; `alone` comes before."""
    for _ in range(STARTS):
        folder = _short_folder(workdir)
        log = workdir / "ray.log"
        ports = _free_ports(7)
        with log.open("wb") as told:
            head = subprocess.Popen(
                _argv(folder / "r", ports, actors=actors, gpus=gpus, store=store),
                stdin=subprocess.PIPE,  # never written to: it closes when we end
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while head.poll() is None and time.monotonic() < until:
            if STARTED in log.read_bytes():
                return head, folder, f"{LOOPBACK}:{ports[0]}"
            _tell_ports(folder / "r", runtime_env_agent=ports[4])
            time.sleep(0.1)
        _end(head)
        shutil.rmtree(folder, ignore_errors=True)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise RecipeError(
        "ray_unavailable",
        Fault.MACHINE,
        f"Ray did not start on this machine, tried {STARTS} times: {' '.join(last)}",
    )


def _tell_ports(folder: Path, *, runtime_env_agent: int) -> None:
    """Write down what Ray's agents would: that those of the dashboard are not there, and the port
    that we gave the other. A raylet waits 15 s for these files, which no setting changes, and on a
    busy machine two imports of Ray take longer."""
    ports = {
        "metrics_agent_port": -1,
        "metrics_export_port": -1,
        "dashboard_agent_listen_port": -1,
        "runtime_env_agent_port": runtime_env_agent,
    }
    for known in folder.glob("session_2*/gcs_server_port_*"):
        node = known.name.rpartition("_")[2]
        for name, port in ports.items():
            path = known.with_name(f"{name}_{node}")
            if not path.exists():
                whole = path.with_suffix(".new")
                whole.write_text(str(port))
                whole.rename(path)


def _argv(folder: Path, ports: list[int], *, actors: int, gpus: float, store: int) -> list[str]:
    store = max(LEAST_STORE, store)
    names = ["", "dashboard-agent-grpc-", "dashboard-agent-listen-", "metrics-export-"]
    names += ["runtime-env-agent-", "node-manager-", "object-manager-"]
    small = not SHARED_MEMORY.exists() or shutil.disk_usage(SHARED_MEMORY).free < store
    return [
        sys.executable,
        str(Path(__file__).with_name("guard.py")),
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        *(f"--{name}port={port}" for name, port in zip(names, ports, strict=True)),
        f"--node-ip-address={LOOPBACK}",
        f"--num-cpus={actors}",
        *([] if gpus else ["--num-gpus=0"]),
        f"--object-store-memory={store}",
        *([f"--plasma-directory={folder}"] if small else []),
        f"--temp-dir={folder}",
        "--include-dashboard=false",
        "--include-log-monitor=false",
        "--no-monitor",  # of an autoscaler
        "--disable-usage-stats",
    ]


def _short_folder(workdir: Path) -> Path:
    """A folder that nobody else can open, with the link `r` into the run's folder: the path of a
    socket may have 107 bytes, of which Ray uses about 70."""
    target = workdir / "ray"
    target.mkdir(parents=True, exist_ok=True)
    top = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir=top if len(top) <= 16 else "/tmp"))  # noqa: S108
    (folder / "r").symlink_to(target.resolve())
    return folder


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now. Who is quicker takes one; then the start
    fails and is tried again."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _end(head: "subprocess.Popen[bytes]") -> None:
    """Politely, then not; its daemons go with it either way."""
    head.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(END_S)
    if head.stdin is not None:
        head.stdin.close()
    head.wait()


@contextlib.contextmanager
def _kept_handler() -> Iterator[None]:
    try:
        before = signal.getsignal(signal.SIGTERM)
        yield
    finally:
        with contextlib.suppress(ValueError):  # only the main thread may, and only there Ray did
            signal.signal(signal.SIGTERM, before)
