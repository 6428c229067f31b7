"""Tasks, the tools that act on them, and the two worlds that come with Concord.

`calculator`: arithmetic. `files`: a store of texts in memory, with the calculator beside it. A tool
that cannot do what it is asked raises `ToolFailure`; `call` is the one place that turns it into a
result, and the result says that it failed. A world is given what its task begins with and never
what it must end as: whoever reads `Task.expected` is counted (`Task.looks`), so a tool that asks
the check before the end is seen, whatever it is called.
"""

import ast
import contextlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from workers.config.grpo import CALCULATOR, FILES
from workers.config.suites import FINAL_STATE, State, read_check
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import Prompt, Turns, prompt_key

FEW = 3  # prompts that a message names


class ToolFailure(Exception):
    """What a tool could not do, in the words that the policy reads."""


@dataclass
class Task:
    """A prompt's world: the files that are there at first, and what must be so at the end."""

    start: Mapping[str, str] = field(default_factory=dict)
    state: State = field(default_factory=State)
    answer: str = ""
    looks: int = 0  # how often somebody read what is expected

    @property
    def expected(self) -> tuple[State, str]:
        """(what the files must be, the right answer; empty where none is asked for)."""
        self.looks += 1
        return self.state, self.answer


def tasks_of(prompts: Iterable[Prompt], environment: str) -> dict[str, Task]:
    """The task of each prompt, by `prompt_key`. Raises `RecipeError` (no_task, bad_task)."""
    found: dict[str, Task] = {}
    without, solved, unfit = [], [], []
    for prompt in prompts:
        words = prompt.messages[-1]["content"][-80:]
        given = prompt.columns.get("check")
        try:
            check = read_check(given, answer=prompt.answer) if given else None
        except ValueError as error:
            raise RecipeError(
                "bad_task", Fault.DATA, f"the check of the prompt {words!r}: {error}"
            ) from error
        if check is None or check.test != FINAL_STATE:
            without.append(words)
            continue
        task = Task(check.value.start, check.value, prompt.answer)
        if environment != FILES and (task.start or task.state.files):
            unfit.append(words)
        if not task.answer and task.state.wanted() == dict(task.start):
            solved.append(words)
        key = prompt_key(prompt.messages)
        if key in found and found[key] != task:
            raise RecipeError(
                "bad_task", Fault.DATA, f"two rows ask {words!r} and want different final states"
            )
        found[key] = task
    if without:
        told = _named(without, "have no check of a final state (check.test: final_state)")
        raise RecipeError("no_task", Fault.DATA, told)
    for several, what in (
        (unfit, f"speak of files, and the environment {environment} has none"),
        (solved, "are solved before anything is done: the final state is the first one"),
    ):
        if several:
            raise RecipeError("bad_task", Fault.DATA, _named(several, what))
    return found


def _named(prompts: list[str], what: str) -> str:
    return f"{len(prompts):,} prompts {what}: " + "; ".join(repr(one) for one in prompts[:FEW])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool and its result. `offered`: the tool exists and the arguments fit it;
    `looked`: what the task expects was read meanwhile."""

    name: str
    arguments: Any
    content: str
    error: bool
    offered: bool = True
    looked: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the model reads it. All arguments are texts."""

    name: str
    about: str
    arguments: Mapping[str, str]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema, in the form that chat templates take."""
        properties = {
            name: {"type": "string", "description": about} for name, about in self.arguments.items()
        }
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.about,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(self.arguments),
                },
            },
        }

    def misfit(self, arguments: Any) -> str | None:
        """What of the arguments does not fit; None if all do."""
        if not isinstance(arguments, Mapping):
            return "the arguments are no object"
        for name in self.arguments:
            if not isinstance(arguments.get(name), str):
                return f"the argument {name} must be a text"
        for name in arguments:
            if name not in self.arguments:
                return f"there is no argument {name}"
        return None


class World:
    """What a task's tools act on. Each tool is the method of its name."""

    tools: ClassVar[tuple[Tool, ...]] = ()

    def __init__(self, task: Task) -> None:
        self.task = task
        self.files = dict(task.start)

    def call(self, name: str, arguments: Any) -> Call:
        """The result of a call; what fails is a result that says so, and never an exception."""
        if isinstance(arguments, str):  # some templates write arguments as JSON text
            with contextlib.suppress(ValueError):
                arguments = json.loads(arguments)
        tool = next((tool for tool in self.tools if tool.name == name), None)
        told = f"there is no tool {name}" if tool is None else tool.misfit(arguments)
        if told is not None:
            return Call(name, arguments, told, error=True, offered=False)
        looks = self.task.looks
        content, error = self.result_of(name, arguments)
        return Call(name, arguments, content, error, looked=self.task.looks > looks)

    def result_of(self, name: str, arguments: Mapping[str, str]) -> tuple[str, bool]:
        """(what the policy reads, whether the tool failed)."""
        try:
            return str(getattr(self, name)(**arguments)), False
        except ToolFailure as failure:
            return str(failure), True


# Arithmetic: exact, and bounded, so that no expression takes time or memory.

LONGEST = 200  # characters of an expression
MOST_BITS = 256  # of numerator and denominator, at every step
_ARITHMETIC = re.compile(r"[0-9+\-*/%(). ]+")
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculated(expression: str) -> str:
    """Of + - * / // % ** and brackets on decimal numbers, as an integer or 12 significant digits.
    Raises `ToolFailure`. The expression is parsed and walked, never run."""
    if len(expression) > LONGEST:
        raise ToolFailure(f"the expression is longer than {LONGEST} characters")
    if not _ARITHMETIC.fullmatch(expression):
        raise ToolFailure("the expression may hold digits, + - * / % ** . and brackets alone")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolFailure("this is no arithmetic") from None
    except ZeroDivisionError:
        raise ToolFailure("division by zero") from None
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator / value.denominator:.12g}"


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            return _bounded(Fraction(str(node.value)))
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return Fraction(_UNARY[type(node.op)](_value(node.operand)))
        case ast.BinOp(op=ast.Pow()):
            return _power(_value(node.left), _value(node.right))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _bounded(Fraction(_BINARY[type(node.op)](_value(node.left), _value(node.right))))
    raise ValueError


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """The size is known before anything is multiplied."""
    if exponent.denominator != 1:
        raise ToolFailure("an exponent must be a whole number")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > MOST_BITS:
        raise ToolFailure("the number is too large")
    return _bounded(Fraction(base ** int(exponent)))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise ToolFailure("the number is too large")
    return value


CALCULATE = Tool(
    "calculate",
    "Work out arithmetic, for example 3 * (4 + 5).",
    {"expression": "digits, + - * / % ** and brackets"},
)


class Calculator(World):
    """Arithmetic; nothing is kept."""

    tools: ClassVar[tuple[Tool, ...]] = (CALCULATE,)

    def calculate(self, expression: str) -> str:
        return calculated(expression)


MOST_FILES, LONGEST_FILE = 100, 10_000  # files, characters
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


class FileStore(Calculator):
    """Texts by name, in memory: there is no folder and no disk behind them."""

    tools: ClassVar[tuple[Tool, ...]] = (
        Tool("list_files", "The names of all files, one a line.", {}),
        Tool("read_file", "The text of a file.", {"name": "its name"}),
        Tool(
            "write_file",
            "Write a file; one of that name is replaced.",
            {"name": "its name", "content": "its whole text"},
        ),
        Tool("delete_file", "Remove a file.", {"name": "its name"}),
        CALCULATE,
    )

    def list_files(self) -> str:
        return "\n".join(sorted(self.files)) or "there are no files"

    def read_file(self, name: str) -> str:
        return self.files[self._known(name)]

    def write_file(self, name: str, content: str) -> str:
        if not _NAME.fullmatch(name):
            raise ToolFailure("a name has 1 to 60 letters, digits, dots, - and _")
        if len(content) > LONGEST_FILE:
            raise ToolFailure(f"a file has at most {LONGEST_FILE} characters")
        if name not in self.files and len(self.files) >= MOST_FILES:
            raise ToolFailure(f"there are {MOST_FILES} files already")
        self.files[name] = content
        return f"{name} is written"

    def delete_file(self, name: str) -> str:
        del self.files[self._known(name)]
        return f"{name} is deleted"

    def _known(self, name: str) -> str:
        if name not in self.files:
            raise ToolFailure(f"there is no file {name}")
        return name


WORLDS: dict[str, type[World]] = {CALCULATOR: Calculator, FILES: FileStore}


# One rollout in a world, as it is rewarded, shown and measured.


class Episode(Turns):
    """What was said and done, a text that carries its messages, as every reader of answers takes
    it. `files` are those of the end, `final` is what was said last, `malformed` says that a call
    was begun that nobody can read; `tokens` counts what the policy drew, `all_tokens` the results
    of tools too."""

    task: Task
    calls: tuple[Call, ...]
    files: dict[str, str]
    turns: int
    ended: bool
    malformed: bool
    tokens: int
    all_tokens: int

    @property
    def final(self) -> str:
        last = self.messages[-1] if self.messages else {"role": "", "content": ""}
        return last["content"] if last["role"] == "assistant" else ""

    @property
    def spoken(self) -> str:
        """The policy's own words, without calls and results."""
        return "\n".join(m["content"] for m in self.messages if m["role"] == "assistant")


def replays(episode: Episode, environment: str) -> bool:
    """Whether the same calls in a fresh world give the same results and the same files. They do
    not where a failure was stored as success, or something was kept from another episode."""
    world = WORLDS[environment](Task(episode.task.start))
    for call in episode.calls:
        again = world.call(call.name, call.arguments)
        if (again.content, again.error) != (call.content, call.error):
            return False
    return world.files == episode.files
