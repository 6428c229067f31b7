"""Run a command without any network but loopback, and find out whether it tried to reach one.

A namespace of its own has loopback alone; nothing there can be reached or answer. Attempts are seen
twice: an audit hook in every Python process names the address and the line of code, and the kernel
counts what had no route, whoever asked.

Run: python -m tests.offline [--report] COMMAND …
The status is the command's, or 3 where something was tried; with --report that is only printed.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOOK = ROOT / "tests" / "offline_hook"
TRIED = 3
_INSIDE = "CONCORD_TEST_OFFLINE"  # set where the namespace is
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_TRIES = (("unshare", "-n"), ("unshare", "-rn"))  # of root; of anybody where the kernel lets them


def way_in() -> tuple[str, ...] | None:
    """How a program gets a network namespace here; None where there is no way."""
    if shutil.which("unshare"):
        for words in _TRIES:
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
    return None


def offline(command: list[str], *, report: bool = False, **more: object) -> int:
    """Runs it in there; its exit status."""
    words = way_in()
    if words is None:
        raise OSError("no network namespace can be made here: unshare -n and -rn both fail")
    argv = [*words, sys.executable, "-m", "tests.offline", *(["--report"] if report else [])]
    environment = os.environ | {_INSIDE: "1"}
    done = subprocess.run([*argv, *command], cwd=ROOT, env=environment, check=False, **more)
    return done.returncode


def inside(command: list[str], *, report: bool) -> int:
    loopback_up()
    with tempfile.TemporaryDirectory(prefix="concord-offline-") as folder:
        seen = Path(folder) / "attempts"
        paths = [str(HOOK), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "CONCORD_ATTEMPTS": str(seen),
            "TRAINER_ENVIRONMENT": "CONCORD_ATTEMPTS",  # trainers get no variable unasked
        }
        del environment[_INSIDE]
        before = without_route()
        status = subprocess.run(command, env=environment, check=False).returncode
        counted = without_route() - before
        named = seen.read_text().splitlines() if seen.exists() else []
    for line in sorted(set(named)):
        print(f"tried: {line}", file=sys.stderr)  # noqa: T201
    said = f"attempts to leave loopback: {len(named)} by Python code, {counted} without a route"
    print(said, file=sys.stderr)  # noqa: T201
    return TRIED if status == 0 and not report and (named or counted) else status


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        name = b"lo"
        answer = fcntl.ioctl(asking, _GET_FLAGS, struct.pack("16sh14x", name, 0))
        flags = struct.unpack("16sh14x", answer)[1]
        fcntl.ioctl(asking, _SET_FLAGS, struct.pack("16sh14x", name, flags | _UP))


def without_route() -> int:
    """How often the kernel found no way to an address, in this namespace."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines()[:2])
    total = int(dict(zip(names, values, strict=True))["OutNoRoutes"])
    six = Path("/proc/net/snmp6")
    if six.exists():
        counts = dict(line.split() for line in six.read_text().splitlines())
        total += int(counts.get("Ip6OutNoRoutes", 0))
    return total


def main() -> None:
    words = sys.argv[1:]
    report = words[:1] == ["--report"]
    command = words[report:]
    if not command:
        sys.exit(__doc__)
    run = inside if os.environ.get(_INSIDE) else offline
    sys.exit(run(command, report=report))


if __name__ == "__main__":
    main()
