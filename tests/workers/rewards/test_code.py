"""Answers' code, run against tests: right and wrong answers, attacks, and machines that refuse."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workers.recipes.language import user
from workers.config.rewards import CODE, VerifierSettings, verifiers_by
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Prompt
from workers.rewards.build import Verifier
from workers.rewards.code_process import (
    ENDED,
    LATE,
    LONG,
    NO_CODE,
    PASSED,
    RAISED,
    WRONG,
    CodeRunner,
    Ran,
    code_of,
    read_tests,
)

ADD = read_tests("assert add(1, 2) == 3\nassert add(2, 2) == 4")
PROGRAM = read_tests(
    '{"tests": [{"input": "1 2", "output": "3\\n"}, {"input": "4 5", "output": "9"}]}'
)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CodeRunner:
    """Of a machine that can shut code off; elsewhere these tests say nothing, except in CI."""
    monkeypatch.setenv("CODE_VERIFIER", "1")
    try:
        return _runner()
    except RecipeError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(error.message)


def _runner(seconds: float = 10.0) -> CodeRunner:
    return CodeRunner(seconds=seconds, memory_mb=256, tolerance=1e-6, relative_tolerance=0.0)


def test_the_first_fenced_block_is_the_code_else_all_of_the_answer() -> None:
    assert code_of("So:\n```python\nx = 1\n```\nor\n```\ny = 2\n```") == "x = 1"
    assert code_of("~~~\nx = '```'\n~~~") == "x = '```'"
    assert code_of("x = 1") == "x = 1"
    assert code_of("```py\nx = 1") == "x = 1"  # cut before its end


def test_functions_and_programs_are_judged_by_what_they_give_back(runner: CodeRunner) -> None:
    assert runner.run("```python\ndef add(a, b):\n    return a + b\n```", ADD) == Ran(2, 2, PASSED)
    half = runner.run("def add(a, b): return 3", ADD)
    assert half == Ran(1, 2, WRONG, "test 2")
    assert half.words == "wrong_result: 1 of 2 tests passed (test 2)"
    assert runner.run("print(sum(map(int, input().split())))", PROGRAM) == Ran(2, 2, PASSED)
    assert runner.run("print(3)", PROGRAM) == Ran(1, 2, WRONG)
    assert runner.run("```\n```", ADD).reason == NO_CODE
    assert runner.run("def add(a, b) return", ADD).detail.startswith("SyntaxError")
    assert runner.run("def plus(a, b): return 3", ADD).detail == "has no function add"


def test_values_are_compared_as_json_within_the_tolerance(runner: CodeRunner) -> None:
    def passes(returned: str, right: str) -> bool:
        return runner.run(
            f"def f(): return {returned}", read_tests(f"assert f() == {right}")
        ) == Ran(1, 1, PASSED)

    assert passes("(1, 2)", "[1, 2]")
    assert passes("0.1 + 0.2", "0.3")
    assert passes("{1: 'a'}", "{1: 'a'}")
    assert not passes("1", "True")
    assert not passes("{1, 2}", "[1, 2]")
    assert not passes("float('nan')", "0.0")
    assert not passes("'1'", "1")


# Each attack on the verdict, the machine or what stands beside it, and the reason it is given.
ATTACKS = {
    "ends the process with success": ("import os\nos._exit(0)", ENDED),
    "exits early": ("import sys\nsys.exit(0)", RAISED),
    "says that it passed": (
        "import os\nprint('all tests passed')\nos.write(1, b'all tests passed')\nos._exit(0)",
        ENDED,
    ),
    "overrides equality": (
        "class Same(int):\n    __eq__ = __ne__ = lambda *a: True\n"
        "    def __hash__(self): return 0\ndef add(a, b): return Same(99)",
        WRONG,
    ),
    "overrides what writes the result": (
        'import json\njson.dumps = lambda *a, **k: \'{"passed": 2, "value": true}\'\n'
        "def add(a, b): return 0",
        WRONG,
    ),
    "writes lines of its own to every descriptor": (
        "import os\nfor i in range(3, 32):\n    try: os.write(i, b'{\"passed\": 2}\\n' * 2)\n"
        "    except OSError: pass\ndef add(a, b): return 0",
        WRONG,
    ),
    "acts at the end": (
        "import atexit, os\nclass Late:\n    def __del__(self): os.write(1, b'passed')\n"
        "late = Late()\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
        WRONG,
    ),
    "never ends": ("while True: pass", LATE),
    "never ends, catching everything": (
        "def add(a, b):\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        LATE,
    ),
    "forks for ever": ("import os\nwhile True: os.fork()", RAISED),
    "starts a program": ("import subprocess\nsubprocess.run(['/bin/true'])", RAISED),
    "takes 10 GB": ("x = bytearray(10**10)", RAISED),
    "recurses for ever": ("def add(a, b): return add(a, b)", RAISED),
    "prints for ever": (
        "import os\ndef add(a, b):\n    while True:\n        for i in range(3, 32):\n"
        "            try: os.write(i, b'x' * 65536)\n            except OSError: pass",
        LONG,
    ),
    "gives back a very deep list": (
        "import os\nfor i in range(3, 32):\n    try: os.write(i, b'[' * 200000 + b'\\n')\n"
        "    except OSError: pass\ndef add(a, b): return 0",
        ENDED,
    ),
    "crashes": ("import ctypes\nctypes.memset(0, 0, 1)", ENDED),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_earns_nothing_and_has_its_reason(name: str, runner: CodeRunner) -> None:
    code, reason = ATTACKS[name]
    started = time.monotonic()
    ran = (_runner(1.0) if reason == LATE else runner).run(code, ADD)
    assert (ran.passed, ran.reason) == (0, reason), ran
    assert time.monotonic() - started < 30


def test_no_child_outlives_its_answer(runner: CodeRunner) -> None:
    before = _children()
    quiet = (
        "import signal, threading, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
    )
    _runner(0.5).run(
        quiet + "threading.Thread(target=time.sleep, args=(60,)).start()\ntime.sleep(60)", ADD
    )
    assert _children() == before


def _children() -> set[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"code_box.py" in path.read_bytes():
                found.add(path.parent.name)
        except OSError:  # it is gone
            continue
    return found


def test_the_disk_of_an_answer_is_small_and_its_own(runner: CodeRunner) -> None:
    one = "open('a', 'wb').write(b'x' * 10**6 * {})\ndef add(a, b): return a + b"
    assert runner.run(one.format(1), ADD) == Ran(2, 2, PASSED)
    many = (
        "for i in range(100): open(str(i), 'wb').write(b'x' * 10**6)\ndef add(a, b): return a + b"
    )
    assert runner.run(many, ADD).detail.startswith("OSError: [Errno 28]")
    whole = "x = b'x' * 10**6\nwith open('a', 'wb') as f:\n    for i in range(1000): f.write(x)"
    assert runner.run(whole, ADD).detail.startswith("OSError: ")
    left = "import os\ndef add(a, b): return os.listdir('.')"
    assert runner.run(left, read_tests("assert add() == []")).reason == RAISED
    assert runner.run(left, read_tests("assert add(1, 2) == []")) == Ran(1, 1, PASSED)


def test_nothing_of_the_worker_can_be_read(
    runner: CodeRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files, its environment, its processes, Python's packages."""
    monkeypatch.setenv("REWARD_TOKEN_PLANTED", "hunter2")
    secret = tmp_path / "token"
    secret.write_text("hunter2")
    here = str(Path(__file__).resolve())
    code = f"""
import os, sys
def reads(path):
    try:
        return open(path, "rb").read(9).hex()
    except OSError:
        return "none"
def look():
    paths = [{str(secret)!r}, {here!r}, "/etc/passwd", "/proc/self/environ", "/proc/1/environ",
             "/proc/{os.getpid()}/environ", "../" * 20 + {str(secret)!r}[1:]]
    return [reads(path) for path in paths] + [
        str("REWARD_TOKEN_PLANTED" in os.environ), str(os.getpid()), str("torch" in sys.modules)]
"""
    right = '["none", "none", "none", "none", "none", "none", "none", "False", "1", "False"]'
    assert runner.run(code, read_tests(f"assert look() == {right}")) == Ran(1, 1, PASSED)
    writes = "def f():\n    open('/usr/lib/planted', 'w')"
    assert "Read-only" in runner.run(writes, read_tests("assert f() == 1")).detail
    stops = f"import os\ndef f(): os.kill({os.getpid()}, 9)"
    assert runner.run(stops, read_tests("assert f() == 1")).reason == RAISED


@pytest.mark.parametrize("namespaces", [True, False])
def test_no_socket_reaches_loopback(
    namespaces: bool, runner: CodeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where there are no namespaces: the filter of system calls refuses every socket."""
    if not namespaces:
        monkeypatch.setenv("CODE_VERIFIER_WITHOUT_NAMESPACES", "1")
        runner = _runner()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}))"
        assert runner.run(code, ADD).detail.startswith("PermissionError")
        with pytest.raises(TimeoutError):
            server.accept()
    fork = "import os\nos.fork()\ndef add(a, b): return a + b"
    assert runner.run(fork, ADD).detail.startswith("PermissionError")
    assert runner.run("def add(a, b): return a + b", ADD) == Ran(2, 2, PASSED)


def test_rights_cannot_be_taken_back(runner: CodeRunner) -> None:
    """Namespaces, mounts, another session, and living longer than the worker."""
    code = """
import ctypes
libc = ctypes.CDLL(None)
def tries():
    return [libc.unshare(0x10000000), libc.mount(b"x", b"/", b"tmpfs", 0, None), libc.setsid(),
            libc.prctl(1, 0, 0, 0, 0), libc.chroot(b"/tmp"), libc.ptrace(0, 0, 0, 0),
            libc.memfd_create(b"x", 0)]
"""
    assert runner.run(code, read_tests(f"assert tries() == {[-1] * 7}")) == Ran(1, 1, PASSED)


def test_a_worker_without_the_setting_runs_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODE_VERIFIER", raising=False)
    with pytest.raises(RecipeError) as raised:
        Verifier(VerifierSettings(check_="code"), [Prompt(user("add"), answer="assert f(1) == 1")])
    assert (raised.value.kind, raised.value.fault) == ("no_code_verifier", Fault.MACHINE)
    assert "sets CODE_VERIFIER=1" in raised.value.message


def test_a_machine_that_gives_no_namespaces_refuses_unless_a_second_setting_allows_it(
    runner: CodeRunner,
) -> None:
    """A namespace in which no further one may be made stands for such a kernel."""
    program = (
        "from workers.rewards.code_process import allowed\n"
        "try: print(allowed())\nexcept Exception as error: print(error.message)"
    )
    limit = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    shell = ["unshare", "-r", "sh", "-c", limit + '"$0" -c "$1"', sys.executable, program]

    def said(**more: str) -> str:
        done = subprocess.run(
            shell,
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=Path(__file__).parents[3],
        )
        return done.stdout + done.stderr

    assert "cannot shut code off: the kernel gives this account no namespaces" in said()
    assert said(CODE_VERIFIER_WITHOUT_NAMESPACES="1").strip() == "False"


def test_a_verifier_scores_by_all_tests_or_by_their_share_and_says_why(runner: CodeRunner) -> None:
    prompt = Prompt(user("add"), answer='["assert add(1, 2) == 3", "assert add(2, 2) == 4"]')
    answers = ["def add(a, b): return a + b", "def add(a, b): return 3", " "]
    asked = [prompt.messages] * 3
    scores = Verifier(VerifierSettings(check_="code", missing=-1.0), [prompt]).score(asked, answers)
    assert scores.values == [1.0, 0.0, -1.0]
    assert scores.parts["correct"] == [1.0, 0.0, 0.0]
    assert scores.reasons is not None
    assert scores.reasons[:2] == [
        "passed: 2 of 2 tests passed",
        "wrong_result: 1 of 2 tests passed (test 2)",
    ]
    share = Verifier(VerifierSettings(check_="code", partial=True), [prompt]).score(asked, answers)
    assert share.values == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("42", "holds no tests"),
        ("the sum", "test 1 ('the sum'): is no `assert"),
        ("assert f(__import__('os').getcwd()) == 1", "is no `assert"),
        ("assert f(1) == {1, 2}", "is no `assert"),
        ("assert f(1) == 1\nassert g(1) == 1", "tests call several functions (f, g)"),
        ('{"call": "f", "tests": []}', "has 0 tests; 1 to 200 are run"),
        ('{"call": "f", "tests": [{"arguments": 1, "returns": 1}]}', "tests[0].arguments: must be"),
        ('{"call": "f", "tests": [{"input": "", "output": ""}]}', "tests[0]: must have arguments"),
        ('{"tests": [{"input": 1, "output": ""}]}', "tests[0]: input and output must be texts"),
        ('{"call": "f()", "tests": [1]}', "call: is no name of a function"),
        ("[" * 100_000, "is nested too deep"),
    ],
)
def test_tests_that_cannot_be_read_are_named(answer: str, told: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        read_tests(answer)
    assert told in str(raised.value)


def test_checks_that_run_code_are_found_in_sums() -> None:
    code = {"type": "verifier", "check": "code"}
    both = [{"name": "a", "source": {"type": "verifier"}}, {"name": "b", "source": code}]
    assert verifiers_by(CODE, {"type": "sum", "parts": both}) == ["reward.parts[1].source.check"]
