"""Code of an answer, run against tests in a child that is shut off (code_box.py).

What is right stays here: the child gets the code and the inputs, and gives back values or printed
text, which are compared in this process as plain JSON. Off unless the worker's `CODE_VERIFIER` is
`1`; what is shut off and what is not: docs/security.md.
"""

import ast
import json
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workers.config.rewards import runs_code
from workers.contract.events import Fault, RecipeError

WITHOUT_NAMESPACES = "CODE_VERIFIER_WITHOUT_NAMESPACES"
MOST_TESTS = 200
MOST_CODE = 100_000  # characters
MOST_OUTPUT = 1_000_000  # bytes that are read of one child
DISK_BYTES = 16_000_000
START_SECONDS = 60.0  # until the child is shut off, on a busy machine
AT_ONCE = 4  # children

# Why an answer has the score that it has.
PASSED, NO_CODE, WRONG, RAISED, LATE, ENDED, LONG = (
    "passed",
    "no_code",
    "wrong_result",
    "raised",
    "out_of_time",
    "ended_early",
    "too_much_output",
)

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Case:
    """One test: arguments of a call and what it returns, or input of a program and its output."""

    arguments: tuple[Any, ...] = ()
    returns: Any = None
    input: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Tests:
    """`call`: the function that is called; "" where the code is a program."""

    call: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """Which tests an answer passed, and why it failed the first that it failed."""

    passed: int
    of: int
    reason: str
    detail: str = ""

    @property
    def words(self) -> str:
        told = f"{self.reason}: {self.passed} of {self.of} tests passed"
        return f"{told} ({self.detail})" if self.detail else told


def code_of(answer: str) -> str:
    """The first fenced block, or all of the answer where it has none."""
    found = _FENCE.search(answer)
    return (found[2] if found else answer).strip("\n")


def read_tests(answer: str) -> Tests:
    """Of a prompt's `answer`. Raises ValueError with words that follow "the answer …".

    {"call": "add", "tests": [{"arguments": [1, 2], "returns": 3}]}, a program's
    {"tests": [{"input": "1 2", "output": "3"}]}, or lines (or a list) of
    `assert add(1, 2) == 3`, which are read and never run.
    """
    try:
        given = json.loads(answer)
    except ValueError:
        given = answer.strip().splitlines()
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if isinstance(given, list):
        return _of_asserts([str(line).strip() for line in given if str(line).strip()])
    tests = given.get("tests") if isinstance(given, dict) else None
    if not isinstance(tests, list) or set(given) - {"call", "tests"}:
        raise ValueError("holds no tests: give {call, tests}, {tests} or lines of assert")
    call = given.get("call", "")
    if not isinstance(call, str) or (call and not call.isidentifier()):
        raise ValueError("call: is no name of a function")
    return _bounded(call, [_case(call, one, f"tests[{i}]") for i, one in enumerate(tests)])


def _case(call: str, given: Any, where: str) -> Case:
    names = {"arguments", "returns"} if call else {"input", "output"}
    if not isinstance(given, dict) or set(given) != names:
        raise ValueError(f"{where}: must have {' and '.join(sorted(names))}, and nothing else")
    if not call:
        if not all(isinstance(given[name], str) for name in names):
            raise ValueError(f"{where}: input and output must be texts")
        return Case(input=given["input"], output=given["output"])
    if not isinstance(given["arguments"], list):
        raise ValueError(f"{where}.arguments: must be a list")
    return Case(arguments=tuple(given["arguments"]), returns=given["returns"])


def _of_asserts(lines: Sequence[str]) -> Tests:
    """`assert name(values) == value`, all of one function."""
    found: list[tuple[str, Case]] = []
    for i, line in enumerate(lines):
        told = f"test {i + 1} ({line[:60]!r})"
        try:
            body = ast.parse(line).body
            compared = body[0].test if len(body) == 1 and isinstance(body[0], ast.Assert) else None
            if not (
                isinstance(compared, ast.Compare)
                and [type(op) for op in compared.ops] == [ast.Eq]
                and isinstance(compared.left, ast.Call)
                and isinstance(compared.left.func, ast.Name)
                and not compared.left.keywords
            ):
                raise ValueError
            arguments = [_plain(ast.literal_eval(one)) for one in compared.left.args]
            returns = _plain(ast.literal_eval(compared.comparators[0]))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(
                f"{told}: is no `assert name(values) == value` with values that JSON has"
            ) from None
        found.append((compared.left.func.id, Case(arguments=tuple(arguments), returns=returns)))
    names = {name for name, _ in found}
    if len(names) > 1:
        raise ValueError(f"tests call several functions ({', '.join(sorted(names))})")
    return _bounded(next(iter(names), ""), [case for _, case in found])


def _plain(value: Any) -> Any:
    """As JSON has it: tuples are lists, keys are texts."""
    return json.loads(json.dumps(value))


def _bounded(call: str, cases: list[Case]) -> Tests:
    if not 1 <= len(cases) <= MOST_TESTS:
        raise ValueError(f"has {len(cases)} tests; 1 to {MOST_TESTS} are run")
    return Tests(call, tuple(cases))


class CodeRunner:
    """`seconds`: wall clock of one answer (for programs, of each test); tolerances as for numbers.
    Raises `RecipeError` (no_code_verifier) where this worker runs no code."""

    def __init__(
        self, *, seconds: float, memory_mb: int, tolerance: float, relative_tolerance: float
    ) -> None:
        self._namespaces = allowed()
        self._seconds, self._memory = seconds, memory_mb * 1_000_000
        self._near = (relative_tolerance, tolerance)

    def run(self, answer: str, tests: Tests) -> Ran:
        code, n = code_of(answer), len(tests.cases)
        if not code.strip() or len(code) > MOST_CODE:
            return Ran(0, n, NO_CODE, "" if not code.strip() else "too long")
        if tests.call:
            return self._called(code, tests)
        said = [self._printed(code, case) for case in tests.cases]
        bad = next(((reason, detail) for reason, detail in said if reason != PASSED), (PASSED, ""))
        return Ran(sum(reason == PASSED for reason, _ in said), n, *bad)

    def _called(self, code: str, tests: Tests) -> Ran:
        arguments = [list(case.arguments) for case in tests.cases]
        told = self._child({"code": code, "call": tests.call, "arguments": arguments})
        lines = told.output.split(b"\n")[:-1]  # what follows the last line end was not finished
        passed, reason, detail = 0, PASSED, ""
        for i, case in enumerate(tests.cases):
            one = _read(lines[i]) if i < len(lines) else None
            if one is None:
                found = (told.stopped or ENDED, "")
            elif "error" in one:
                found = (RAISED, str(one["error"])[:200])
            elif "value" in one and self._right(one["value"], case.returns):
                passed += 1
                continue
            else:
                found = (WRONG, f"test {i + 1}")
            if reason == PASSED:
                reason, detail = found
        return Ran(passed, len(tests.cases), reason, detail)

    def _printed(self, code: str, case: Case) -> tuple[str, str]:
        told = self._child({"code": code, "call": "", "input": case.input})
        if told.stopped:
            return told.stopped, ""
        if told.status not in (0, 1):
            return ENDED, f"status {told.status}"
        text = told.output.decode(errors="replace")
        if _lines(text) == _lines(case.output) and told.status == 0:
            return PASSED, ""
        return (RAISED if told.status else WRONG), ""

    def _right(self, given: Any, right: Any) -> bool:
        try:
            return self._same(given, right)
        except RecursionError:
            return False

    def _same(self, given: Any, right: Any) -> bool:
        """Both are plain JSON. Numbers within the tolerances; true is not 1."""
        if isinstance(given, bool) or isinstance(right, bool):
            return given is right
        if isinstance(given, int | float) and isinstance(right, int | float):
            if isinstance(given, int) and isinstance(right, int):
                return given == right
            relative, absolute = self._near
            try:
                return math.isclose(given, right, rel_tol=relative, abs_tol=absolute)
            except OverflowError:
                return False
        if isinstance(given, list) and isinstance(right, list):
            return len(given) == len(right) and all(map(self._same, given, right))
        if isinstance(given, dict) and isinstance(right, dict):
            return given.keys() == right.keys() and all(
                self._same(given[name], right[name]) for name in right
            )
        return type(given) is type(right) and given == right

    def _child(self, asked: dict[str, Any]) -> "_Told":
        return _ask(
            asked,
            seconds=self._seconds,
            memory=self._memory,
            namespaces=self._namespaces,
        )


# --- the child ---


@dataclass(frozen=True, slots=True)
class _Told:
    """`stopped`: LATE or LONG where we ended it; `status`: negative for a signal."""

    output: bytes
    stopped: str
    status: int


def allowed() -> bool:
    """Whether code runs in namespaces of its own; `RecipeError` (no_code_verifier) where it may not
    run at all. Whether this machine can is tried once."""
    if not runs_code():
        raise _refusal(
            "check: code is off on this worker. Whoever runs it sets CODE_VERIFIER=1 there, "
            "after reading docs/security.md"
        )
    namespaces = os.environ.get(WITHOUT_NAMESPACES, "") != "1"
    if told := _refused(namespaces):
        raise _refusal(told)
    return namespaces


@cache
def _refused(namespaces: bool) -> str:
    """Why this machine cannot shut code off; "" where it can."""
    asked = {"code": "def f(): return 1", "call": "f", "arguments": [[]]}
    try:
        _ask(asked, seconds=START_SECONDS, memory=512_000_000, namespaces=namespaces)
    except RecipeError as error:
        return error.message
    return ""


def _refusal(told: str) -> RecipeError:
    return RecipeError("no_code_verifier", Fault.MACHINE, told)


def _ask(asked: dict[str, Any], *, seconds: float, memory: int, namespaces: bool) -> _Told:
    """One child from start to end. It is killed with its whole group, whatever happens here."""
    folder = tempfile.mkdtemp(prefix="concord-code-")
    request = asked | {
        "parent": os.getpid(),
        "folder": folder,
        "namespaces": namespaces,
        "memory_bytes": memory,
        "cpu_seconds": math.ceil(seconds) + 1,
        "disk_bytes": DISK_BYTES,
    }
    box = str(Path(__file__).with_name("code_box.py"))
    child = subprocess.Popen(
        [os.path.realpath(sys.executable), "-I", "-S", box],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={},
        cwd="/",
        close_fds=True,
        start_new_session=True,
    )
    try:
        return _told(child, json.dumps(request).encode(), seconds)
    finally:
        _end(child)
        shutil.rmtree(folder, ignore_errors=True)


def _told(child: "subprocess.Popen[bytes]", request: bytes, seconds: float) -> _Told:
    into, out = child.stdin, child.stdout
    assert into is not None  # noqa: S101 - a pipe
    assert out is not None  # noqa: S101 - a pipe
    try:
        into.write(request)
        into.close()
    except OSError as error:
        raise _refusal("the process that runs code did not start") from error
    with selectors.DefaultSelector() as waiting:
        waiting.register(out, selectors.EVENT_READ)
        found, until = b"", time.monotonic() + START_SECONDS
        while b"\n" not in found:
            piece = _piece(waiting, out, until)
            if not piece:
                raise _refusal("the process that runs code did not start")
            found += piece
        first, _, found = found.partition(b"\n")
        if b"ready" not in first:
            why = (_read(first) or {}).get("refused", "it does not say why")
            raise _refusal(
                f"this machine cannot shut code off: {why}. Allow unprivileged user namespaces "
                "there, or choose another worker (docs/security.md)"
            )
        until = time.monotonic() + seconds
        while len(found) <= MOST_OUTPUT:
            piece = _piece(waiting, out, until)
            if piece is None:
                return _Told(found, LATE, 0)
            if not piece:
                return _closed(child, found, until)
            found += piece
    return _Told(found[:MOST_OUTPUT], LONG, 0)


def _closed(child: "subprocess.Popen[bytes]", found: bytes, until: float) -> _Told:
    """It may close its output and stay."""
    try:
        status = child.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return _Told(found, LATE, 0)
    return _Told(found, "", status)


def _piece(waiting: selectors.BaseSelector, out: Any, until: float) -> bytes | None:
    """None when the time is up, b"" at the end of the output."""
    left = until - time.monotonic()
    return os.read(out.fileno(), 65_536) if left > 0 and waiting.select(left) else None


def _end(child: "subprocess.Popen[bytes]") -> None:
    # One that was waited for has ended its own child first, and its number may be another's now.
    if child.returncode is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _read(line: bytes) -> dict[str, Any] | None:
    """A line that the tested code may have written itself."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _lines(text: str) -> list[str]:
    """Without spaces at the ends of lines, and empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
