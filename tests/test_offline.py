"""Nothing calls home: parts of Concord run with loopback alone, and nobody tries to leave it.

`make test-offline` runs the whole suite so, `make test-system` the parts below.
"""

import ctypes
import os
import struct
import subprocess
import sys

import pytest

from tests import offline
from tests.offline_parts import PARTS

# Ray asks the machine whether it is one of a cloud: that says nothing of us, and has no switch.
OF_THE_CLOUD = ("'169.254.169.254'", "'metadata.google.internal'")


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if offline.way_in() is None:
        if os.environ.get("CI"):
            pytest.fail(
                "no network namespace can be made: neither unshare -n nor unshare -rn works"
            )
        pytest.skip("no network namespace can be made here")


def run(*words: str, report: bool = False) -> "subprocess.CompletedProcess[str]":
    flags = ["--report"] if report else []
    return subprocess.run(
        [sys.executable, "-m", "tests.offline", *flags, sys.executable, *words],
        cwd=offline.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import socket; socket.create_connection(('192.0.2.1', 80), 1)", "'192.0.2.1'"),
        ("import socket; socket.create_connection(('2001:db8::1', 80), 1)", "'2001:db8::1'"),
        ("import socket; socket.getaddrinfo('example.org', 80)", "'example.org'"),
        (
            "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
            "socket.sendto '192.0.2.1'",
        ),
        (
            "import subprocess, sys; subprocess.run([sys.executable, '-c',"
            " \"import socket; socket.create_connection(('192.0.2.1', 80), 1)\"])",
            "'192.0.2.1'",
        ),
    ],
)
def test_an_attempt_to_leave_is_found_and_named(code: str, said: str) -> None:
    done = run("-c", f"try:\n  {code}\nexcept OSError: pass")
    assert done.returncode == offline.TRIED, done.stderr
    assert f"{said} from " in done.stderr


def test_what_is_not_python_is_counted_by_the_kernel() -> None:
    assert ctypes.CDLL(None).connect, "as any library would"
    address = struct.pack("<H", 2) + struct.pack(">H", 80) + bytes([192, 0, 2, 1]) + bytes(8)
    code = f"import ctypes; c = ctypes.CDLL(None); c.connect(c.socket(2, 1, 0), {address!r}, 16)"
    done = run("-c", code)
    assert done.returncode == offline.TRIED
    assert "0 by Python code, 1 without a route" in done.stderr


def test_loopback_is_there_and_no_attempt_to_leave() -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(('localhost', s.getsockname()[1])); print('through')"
    )
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (0, "through\n"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("part", ["web", "training", "libraries", "ray", "site"])
def test_a_part_works_and_tries_to_reach_nobody(part: str) -> None:
    done = run("-m", "tests.offline_parts", part, report=True)
    assert part in PARTS
    assert done.returncode == 0, done.stderr[-3000:]
    tried = [line for line in done.stderr.splitlines() if line.startswith("tried: ")]
    if part == "ray":
        tried = [line for line in tried if line.split()[2] not in OF_THE_CLOUD]
    else:
        assert "0 by Python code, 0 without a route" in done.stderr
    assert not tried
