"""Runs of agents as steps, and two of them aligned."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from measures.runs import Aligned, aligned, calls_tools, steps_of


def agent(text: str, tool: str = "", **arguments: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool:
        call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
        message["tool_calls"] = [call]
    return message


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def test_a_step_is_a_turn_with_the_results_of_its_calls() -> None:
    run = [agent("", "ls"), tool("a"), tool("b"), {"role": "user", "content": "more"}, agent("ok")]
    steps = steps_of(run, first=4)
    assert [step.number for step in steps] == [4, 5, 6]
    assert [len(step.results) for step in steps] == [2, 0, 0]
    assert steps[0].tools == ("ls",)
    assert [len(step.results) for step in steps_of([tool("x"), tool("y")])] == [0, 0]


def test_steps_that_do_the_same_stand_beside_each_other() -> None:
    left = steps_of([agent("", "ls", p=1), tool("a"), agent("", "cat", f="a"), agent("done")])
    right = steps_of([agent("", "find"), agent("", "ls", p=1), tool("b"), agent("done")])
    assert aligned(left, right) == [
        Aligned(None, 0),
        Aligned(0, 1),  # the same call with another result
        Aligned(1, None),
        Aligned(2, 2, same=True),
    ]


def test_the_same_tool_with_other_arguments_is_aligned_too() -> None:
    left = steps_of([agent("", "cat", f="a"), agent("x")])
    right = steps_of([agent("", "cat", f="b"), agent("y")])
    assert aligned(left, right) == [Aligned(0, 0), Aligned(1, 1)]


def test_ids_and_the_order_of_arguments_make_no_difference() -> None:
    one = agent("", "f", x=1, y=2)
    other = agent("", "f", y=2, x=1)
    other["tool_calls"][0]["id"] = "z"
    assert aligned(steps_of([one]), steps_of([other])) == [Aligned(0, 0, same=True)]


WORDS = st.sampled_from(["ls", "cat", "rm", ""])
RUNS = st.lists(st.tuples(st.sampled_from("abc"), WORDS), max_size=12)


@given(RUNS, RUNS)
def test_every_step_stands_in_one_row_and_in_order(one: Any, other: Any) -> None:
    left, right = (steps_of([agent(text, name) for text, name in run]) for run in (one, other))
    rows = aligned(left, right)
    assert [row.left for row in rows if row.left is not None] == list(range(len(left)))
    assert [row.right for row in rows if row.right is not None] == list(range(len(right)))
    assert all(row.left is not None and row.right is not None for row in rows if row.same)


@given(RUNS)
def test_a_run_beside_itself_is_equal_throughout(run: Any) -> None:
    steps = steps_of([agent(text, name) for text, name in run])
    assert all(row.same for row in aligned(steps, steps))


def test_what_is_a_run_of_an_agent() -> None:
    assert calls_tools([agent("", "ls")])
    assert calls_tools([tool("x")])
    assert not calls_tools([agent("hello"), {"role": "user", "content": "x"}])
