"""Verifiable rewards: responses checked against what is known to be right.

The right answer belongs to the prompt: the field `answer` of its row in the snapshot of prompts, or
`check` where it is the final state of an environment. A source is asked with prompts and responses
alone, so it carries the answers, by prompt.
"""

import json
import os
import selectors
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import regex

from measures.messages import Messages
from workers.config.grpo import FILES
from workers.config.rewards import BLOCK, FINAL_STATE, PENALISE, VerifierSettings
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Prompt, prompt_key
from workers.environments.worlds import Episode, Task, tasks_of
from workers.rewards.code_process import AT_ONCE, NO_CODE, CodeRunner, Ran, read_tests
from workers.rewards.rules import (
    Expression,
    boxed,
    json_in,
    numbers,
    phrase_pattern,
    plain,
    same_text,
)
from workers.rewards.source import CORRECT, FORMED, Scores

# What an answer is worth: share of right, 0–1; None where the response holds no answer.
Verdict = float | None


class Verifier:
    """`parts`: the score; `correct`, 1 for a right answer, 0 for any other; `formed`, 1 where the
    response holds an answer at all."""

    def __init__(
        self, settings: VerifierSettings, prompts: Iterable[Prompt] = (), *, where: str = "reward"
    ) -> None:
        """Raises `RecipeError` (no_answer, bad_answer) if the prompts do not tell what is right."""
        self._settings = settings
        self._found = Expression(settings.pattern, where=f"{where}.pattern")
        self._checks: dict[str, Callable[[str], Verdict | Ran]] = {}
        self._process: MathsProcess | None = None
        self._runner: CodeRunner | None = None
        if settings.check_ == FINAL_STATE:
            self._checks = {
                key: self._ended_as(task) for key, task in tasks_of(prompts, FILES).items()
            }
        elif settings.needs_answers:
            self._checks = self._prepared(list(prompts), where)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        verdicts: list[Any] = self._asked(prompts, responses)
        reasons = None
        if self._runner is not None:
            reasons = [one.words if isinstance(one, Ran) else None for one in verdicts]
            verdicts = [self._share(one) if isinstance(one, Ran) else one for one in verdicts]
        values = [self._value(verdict) for verdict in verdicts]
        correct = [float(isinstance(verdict, float) and verdict == 1) for verdict in verdicts]
        formed = [float(verdict is not None) for verdict in verdicts]
        parts = {"verifier": values, CORRECT: correct, FORMED: formed}
        if self._settings.on_wrong == PENALISE:
            return Scores(values, parts, reasons=reasons)
        told = zip(verdicts, correct, strict=True)
        wrong = [verdict is not _UNKNOWN and not right for verdict, right in told]
        reviews = [f"the answer is not {self._right}" if bad else None for bad in wrong]
        hard = self._settings.on_wrong == BLOCK
        return Scores(
            values, parts, reviews=reviews, blocked=wrong if hard else None, reasons=reasons
        )

    def _ended_as(self, task: Task) -> Callable[[str], Verdict]:
        def check(response: str) -> Verdict:
            state = final_state(task, response)
            return state.share if self._settings.partial else float(state.right)

        return check

    @property
    def _right(self) -> str:
        if self._settings.check_ == FINAL_STATE:
            return "in the final state asked for"
        return "of the shape asked for" if self._settings.check_ == "shape" else "the right one"

    def _asked(self, prompts: Sequence[Messages], responses: Sequence[str]) -> list[Any]:
        """Verdicts; of code what happened when it ran, a few answers at a time."""
        if self._runner is None:
            return [self._verdict(*one) for one in zip(prompts, responses, strict=True)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self._verdict, prompts, responses))

    def _share(self, ran: Ran) -> Verdict:
        if ran.reason == NO_CODE:
            return None
        return ran.passed / ran.of if self._settings.partial else float(ran.passed == ran.of)

    def _verdict(self, prompt: Messages, response: str) -> "Verdict | Ran | object":
        known = self._settings.needs_answers
        check = self._checks.get(prompt_key(prompt)) if known else self._shaped
        if check is None:
            return self._without(prompt)
        taken = response if self._settings.check_ == FINAL_STATE else self._taken(response)
        return None if taken is None else check(taken)

    def _without(self, prompt: Messages) -> object:
        if self._settings.without_answer == "zero":
            return _UNKNOWN
        raise RecipeError(
            "no_answer",
            Fault.DATA,
            f"the verifier knows no answer to the prompt {prompt[-1]['content'][-80:]!r}",
        )

    def _value(self, verdict: "Verdict | object") -> float:
        told = self._settings
        if verdict is _UNKNOWN:
            return 0.0
        if verdict is None:
            return told.wrong if told.missing is None else told.missing
        return told.wrong + float(verdict) * (told.score - told.wrong)  # type: ignore[arg-type] # a bool is a number here

    def _taken(self, response: str) -> str | None:
        """The part of the response that is its answer; None if there is none."""
        how = self._settings.take
        if how == "boxed":
            return next(iter(boxed(response)[-1:]), None)
        if how == "last_line":
            return next((s for line in response.splitlines()[::-1] if (s := line.strip())), None)
        if how == "after":
            _, marker, rest = response.rpartition(self._settings.marker)
            line = rest.strip().splitlines()[:1] if marker else []
            return line[0].strip() if line else None
        if how == "match":
            found = self._found.last(response)
            return None if found is None else (found[1] if found.re.groups else found[0])
        return response if response.strip() else None

    def _shaped(self, taken: str) -> Verdict:
        is_json, value = json_in(taken)
        return float(misfit(value, self._settings.shape) is None) if is_json else None

    # --- the right answers, understood before anything is asked ---

    def _prepared(
        self, prompts: Sequence[Prompt], where: str
    ) -> dict[str, Callable[[str], Verdict | Ran]]:
        known = [prompt for prompt in prompts if prompt.answer]
        if not known or (len(known) < len(prompts) and self._settings.without_answer == "refuse"):
            raise RecipeError(
                "no_answer",
                Fault.DATA,
                f"{where}: {len(prompts) - len(known):,} of {len(prompts):,} prompts have no field "
                "'answer' to verify against (without_answer: zero lets some go without)",
            )
        make = getattr(self, f"_{self._settings.check_}")
        checks = {}
        for prompt in known:
            try:
                checks[prompt_key(prompt.messages)] = make(prompt.answer)
            except ValueError as error:
                raise RecipeError(
                    "bad_answer", Fault.DATA, f"{where}: the answer {prompt.answer!r:.80} {error}"
                ) from error
        return checks

    def _exact(self, answer: str) -> Callable[[str], Verdict]:
        return lambda taken: float(same_text(taken, answer))

    def _number(self, answer: str) -> Callable[[str], Verdict]:
        """The last number of what was taken, which is where answers stand."""
        right = numbers(answer)
        if len(right) != 1:
            raise ValueError("is not one number")
        room = max(
            Fraction(self._settings.tolerance),
            Fraction(self._settings.relative_tolerance) * abs(right[0]),
        )

        def check(taken: str) -> Verdict:
            given = numbers(taken)
            return float(abs(given[-1] - right[0]) <= room) if given else None

        return check

    def _maths(self, answer: str) -> Callable[[str], Verdict]:
        """What cannot be read as mathematics, or takes too long, is no answer."""
        maths = self._process = self._process or MathsProcess()
        try:
            if maths.same(answer, answer) is None:
                raise ValueError("cannot be read as mathematics")
        except TooSlow as error:
            raise ValueError("takes too long to be read as mathematics") from error

        def check(taken: str) -> Verdict:
            if same_text(taken, answer, fold=False):
                return 1.0
            try:
                told = maths.same(taken, answer)
            except TooSlow:
                return None
            return None if told is None else float(told)

        return check

    def _code(self, answer: str) -> Callable[[str], Ran]:
        """Its tests, and whether this worker runs code, are known before anything is asked."""
        runner = self._runner = self._runner or CodeRunner(
            seconds=self._settings.seconds,
            memory_mb=self._settings.memory_mb,
            tolerance=self._settings.tolerance,
            relative_tolerance=self._settings.relative_tolerance,
        )
        tests = read_tests(answer)
        return lambda taken: runner.run(taken, tests)

    def _pattern(self, answer: str) -> Callable[[str], Verdict]:
        try:
            expression = Expression(answer, where="answer")
        except regex.error as error:
            raise ValueError(f"is no regular expression ({error})") from error
        return lambda taken: float(expression.fullmatch(taken.strip()) is not None)

    def _order(self, answer: str) -> Callable[[str], Verdict]:
        items = _items(answer)
        if len(items) < 2 or len({plain(item).casefold() for item in items}) < len(items):
            raise ValueError("is no list of two or more different items")
        patterns = [phrase_pattern(item) for item in items]

        def check(taken: str) -> Verdict:
            found = [pattern.search(plain(taken)) for pattern in patterns]
            places = [match.start() if match else None for match in found]
            if not any(found):
                return None
            if self._settings.partial:
                pairs = list(combinations(places, 2))
                return sum(_before(a, b) for a, b in pairs) / len(pairs)
            return float(all(_before(a, b) for a, b in pairwise(places)))

        return check


@dataclass(frozen=True, slots=True)
class FinalState:
    """What an answer left behind: `share` of what the task names is right, and `right` says whether
    all is, with nothing else changed. `named_only`: every file that the task wants is there, and
    the text of one is not what it wants."""

    right: bool
    share: float
    named_only: bool


def final_state(task: Task, response: str) -> FinalState:
    """Of an `Episode` its own; of any other text that of somebody who called nothing.

    An answer is right where it is the same text, or its last number is the number asked for, in
    what the policy said last.
    """
    state, answer = task.expected
    files = response.files if isinstance(response, Episode) else dict(task.start)
    last = response.final if isinstance(response, Episode) else response
    parts = [files.get(name) == text for name, text in state.files.items()]
    parts += [_same_answer(last, answer)] if answer else []
    written = [name for name, text in state.files.items() if text is not None]
    there = bool(written) and all(name in files for name in written)
    return FinalState(
        right=all(parts) and files == state.wanted(),
        share=sum(parts) / len(parts),
        named_only=there and any(files[name] != state.files[name] for name in written),
    )


def _same_answer(said: str, answer: str) -> bool:
    wanted, given = numbers(answer), numbers(said)
    if len(wanted) == 1 and given and given[-1] == wanted[0]:
        return True
    return same_text(said, answer)


_UNKNOWN = object()  # the verdict on a prompt without an answer


def _before(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def _items(answer: str) -> list[str]:
    """A JSON list, or one item a line, or items between > or commas."""
    is_json, value = json_in(answer)
    if is_json and isinstance(value, list):
        return [str(item) for item in value]
    mark = next((mark for mark in ("\n", ">", ",") if mark in answer), ",")
    return [item for part in answer.split(mark) if (item := part.strip())]


# Whether a JSON value has a shape: the part of JSON Schema that settings.reward_rules allows.


def misfit(value: Any, shape: Mapping[str, Any], where: str = "the answer") -> str | None:
    """The first thing that does not fit, in words; None if all does."""
    kind = shape.get("type")
    if kind is not None and not _is(value, kind):
        return f"{where} is no {kind}"
    if "const" in shape and not _equal(value, shape["const"]):
        return f"{where} is not the constant"
    if "enum" in shape and not any(_equal(value, one) for one in shape["enum"]):
        return f"{where} is none of the allowed values"
    if isinstance(value, dict):
        return _object(value, shape, where)
    if isinstance(value, list):
        size = _outside(len(value), shape, "minItems", "maxItems")
        inner = shape.get("items") or {}
        each = (misfit(one, inner, f"{where}[{i}]") for i, one in enumerate(value))
        return f"{where} has {size} items" if size else next(filter(None, each), None)
    if isinstance(value, str):
        if size := _outside(len(value), shape, "minLength", "maxLength"):
            return f"{where} has {size} characters"
        pattern = shape.get("pattern")
        if pattern and not Expression(pattern, where="shape.pattern").search(value):
            return f"{where} does not match its pattern"
    if _is(value, "number") and (size := _outside(value, shape, "minimum", "maximum")):
        return f"{where} is {size}"
    return None


def _object(value: dict[str, Any], shape: Mapping[str, Any], where: str) -> str | None:
    known = shape.get("properties") or {}
    for name in shape.get("required") or ():
        if name not in value:
            return f"{where} lacks {name}"
    if shape.get("additionalProperties") is False:
        for name in value:
            if name not in known:
                return f"{where} has {name}, which is not asked for"
    each = (misfit(value[n], inner, f"{where}.{n}") for n, inner in known.items() if n in value)
    return next(filter(None, each), None)


def _is(value: Any, kind: str) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "number": (int, float),
        "null": type(None),
    }
    return isinstance(value, types[kind])


def _equal(a: Any, b: Any) -> bool:
    """Python takes True for 1, and JSON does not."""
    return a == b and isinstance(a, bool) is isinstance(b, bool)


def _outside(size: float, shape: Mapping[str, Any], least: str, most: str) -> str | None:
    if least in shape and size < shape[least]:
        return f"{size:g}, under {shape[least]:g},"
    if most in shape and size > shape[most]:
        return f"{size:g}, over {shape[most]:g},"
    return None


# Mathematics compared in a child process, within limits of time and memory. The child is `maths.py`
# run as a file: it gets two texts a line and nothing else of this process, no variable but those
# that Python needs to start. It ends when this process does.

MATHS_SECONDS = 3.0  # for one comparison
START_SECONDS = 120.0  # for the import of sympy on a busy machine
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "SYSTEMROOT")


class TooSlow(Exception):
    """The child did not answer in time, or ended, and was replaced."""


class MathsProcess:
    """One child, started at the first question and again after one that it did not survive."""

    def __init__(self, *, seconds: float = MATHS_SECONDS) -> None:
        """Raises `RecipeError` (missing_package) where sympy is not installed."""
        if find_spec("sympy") is None:
            raise RecipeError(
                "missing_package",
                Fault.MACHINE,
                "check: maths needs the package sympy on this worker: "
                "pip install 'concord-server[verify]'",
            )
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def same(self, given: str, right: str) -> bool | None:
        """Whether both are the same; None where one cannot be read. Raises `TooSlow`."""
        with self._lock:
            told = self._ask(json.dumps([given, right]))
        return bool(told["same"]) if "same" in told else None

    def _ask(self, line: str) -> dict[str, Any]:
        child = self._child or self._start()
        try:
            child.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr] # a pipe
            told: dict[str, Any] = json.loads(_line(child, self._seconds))
        except (OSError, ValueError, TooSlow) as error:
            self._end()
            raise TooSlow(f"no answer within {self._seconds:g} s") from error
        return told

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("maths.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
        )
        self._child, self._ended = child, weakref.finalize(self, _kill, child)
        try:
            _line(child, START_SECONDS)
        except (OSError, TooSlow) as error:
            self._end()
            raise RecipeError(
                "missing_package",
                Fault.MACHINE,
                "the process that compares mathematics did not start",
            ) from error
        return child

    def _end(self) -> None:
        self._ended()
        self._child = None


def _line(child: subprocess.Popen[bytes], seconds: float) -> bytes:
    found = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)  # type: ignore[arg-type] # a pipe
        while not found.endswith(b"\n"):
            if not waiting.select(seconds):
                raise TooSlow
            piece = os.read(child.stdout.fileno(), 65_536)  # type: ignore[union-attr] # a pipe
            if not piece:
                raise TooSlow
            found += piece
    return found


def _kill(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
