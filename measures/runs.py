"""Runs of agents as steps, and two of them beside each other.

A step is one turn of the assistant with the results of the tools that it called, or what anybody
else said in between. Two runs are aligned by what their steps do: which tools are called with
which arguments, or, where none is, what is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from measures.messages import Message, canonical


@dataclass(frozen=True, slots=True)
class Step:
    """`number` counts from 1 in the whole run, the steps of the prompt first."""

    number: int
    message: Message
    results: tuple[Message, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that it calls."""
        return tuple(call["function"]["name"] for call in self.message.get("tool_calls", ()))

    @property
    def act(self) -> str:
        """What it does, for comparing it with others: its calls, or its words without blanks."""
        calls = [list(call["function"].values()) for call in self.message.get("tool_calls", ())]
        if calls:
            return canonical(calls)
        return f"{self.message['role']}: {' '.join(self.message['content'].split())}"

    def is_same(self, other: "Step") -> bool:
        """Whether it did the same, said the same and got the same back."""
        return (
            self.act == other.act
            and _said(self.message) == _said(other.message)
            and [_said(one) for one in self.results] == [_said(one) for one in other.results]
        )


def _said(message: Mapping[str, Any]) -> tuple[str, str]:
    whole = message["cut"]["hash"] if "cut" in message else message["content"].strip()
    return whole, message.get("reasoning_content", "").strip()


def steps_of(messages: Sequence[Message], *, first: int = 1) -> list[Step]:
    """The steps in order, numbered from `first` on. Results that nobody called are a step too."""
    steps: list[Step] = []
    for message in messages:
        if message["role"] == "tool" and steps and steps[-1].message["role"] == "assistant":
            last = steps[-1]
            steps[-1] = Step(last.number, last.message, (*last.results, message))
        else:
            steps.append(Step(first + len(steps), message))
    return steps


@dataclass(frozen=True, slots=True)
class Aligned:
    """Steps that stand beside each other, as places in the two lists; None: only one has it."""

    left: int | None
    right: int | None
    same: bool = False


def aligned(left: Sequence[Step], right: Sequence[Step]) -> list[Aligned]:
    """Both runs in order, each step once. Steps that do the same stand beside each other; of those
    between them, steps that call the same tools (with other arguments), and then, in order, those
    that one has in place of the other's."""
    rows: list[Aligned] = []
    acts = [[step.act for step in steps] for steps in (left, right)]
    matcher = SequenceMatcher(a=acts[0], b=acts[1], autojunk=False)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag == "equal":
            rows += [
                Aligned(a + k, b + k, left[a + k].is_same(right[b + k])) for k in range(a_end - a)
            ]
        else:
            rows += _by_tools(left, right, range(a, a_end), range(b, b_end))
    return rows


def _by_tools(left: Sequence[Step], right: Sequence[Step], a: range, b: range) -> list[Aligned]:
    kinds = [
        [(steps[i].message["role"], steps[i].tools) for i in places]
        for steps, places in ((left, a), (right, b))
    ]
    rows: list[Aligned] = []
    matcher = SequenceMatcher(a=kinds[0], b=kinds[1], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            rows += [Aligned(a[i + k], b[j + k]) for k in range(i_end - i)]
        else:
            both = min(i_end - i, j_end - j)
            rows += [Aligned(a[i + k], b[j + k]) for k in range(both)]
            rows += [Aligned(a[k], None) for k in range(i + both, i_end)]
            rows += [Aligned(None, b[k]) for k in range(j + both, j_end)]
    return rows


def calls_tools(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this is a run of an agent: it calls a tool, or was given a tool's result."""
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)
