"""Tools, tasks and their final states, without a model."""

import json
import pickle
from typing import Any

import pytest

from measures.messages import written
from tests.workers.environments.speaking import check
from tests.workers.recipes.language import user
from workers.config.rewards import VerifierSettings
from workers.config.suites import read_check
from workers.contract.events import RecipeError
from workers.data.snapshot import Prompt
from workers.environments.tasks import task_rows
from workers.environments.worlds import (
    WORLDS,
    Episode,
    FileStore,
    Task,
    ToolFailure,
    World,
    calculated,
    replays,
    tasks_of,
)
from workers.rewards.verifier import Verifier, final_state


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2+3", "5"),
        ("7 * (3 + 4)", "49"),
        ("7/2", "3.5"),
        ("7//2", "3"),
        ("-7 % 3", "2"),
        ("2**64", "18446744073709551616"),
        ("0.1 + 0.2", "0.3"),
        ("(-3)**3", "-27"),
    ],
)
def test_arithmetic_is_exact(expression: str, result: str) -> None:
    assert calculated(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "9**999999999",
        "2**2**2**2**2",
        "9" * 150 + "*" + "9" * 40,
        "(" * 99 + "1" + ")" * 99 + "+" * 20,
        "1" * 201,
        "1//0",
        "0**-1",
        "2**0.5",
        "__import__('os')",
        "1 if 2 else 3",
        "1 (2)",
        "a+1",
        "1e9",
        "",
        "2 3",
    ],
)
def test_what_is_no_small_arithmetic_fails_in_words(expression: str) -> None:
    with pytest.raises(ToolFailure):
        calculated(expression)


def test_files_are_written_read_listed_and_deleted_in_memory_alone() -> None:
    world = FileStore(Task({"a.txt": "one"}))
    assert world.call("list_files", {}).content == "a.txt"
    assert not world.call("write_file", {"name": "b.txt", "content": "two"}).error
    assert world.call("read_file", {"name": "b.txt"}).content == "two"
    assert world.call("read_file", '{"name": "a.txt"}').content == "one"  # arguments as JSON text
    assert not world.call("delete_file", {"name": "a.txt"}).error
    assert world.files == {"b.txt": "two"}
    assert world.task.start == {"a.txt": "one"}


@pytest.mark.parametrize(
    ("name", "arguments", "offered"),
    [
        ("read_file", {"name": "none.txt"}, True),
        ("write_file", {"name": "../etc/passwd", "content": ""}, True),
        ("write_file", {"name": "a", "content": "x" * 10_001}, True),
        ("delete_file", {"name": "none.txt"}, True),
        ("check", {}, False),
        ("result_of", {"name": "a", "arguments": {}}, False),
        ("read_file", {}, False),
        ("read_file", {"name": 3}, False),
        ("read_file", {"name": "a", "mode": "w"}, False),
        ("read_file", [1], False),
        ("read_file", None, False),
    ],
)
def test_a_call_that_fails_is_a_result_that_says_so(
    name: str, arguments: Any, offered: bool
) -> None:
    call = FileStore(Task()).call(name, arguments)
    assert call.error
    assert call.content
    assert call.offered is offered


def episode(
    task: Task,
    *calls: tuple[str, dict[str, str]],
    said: str = "done",
    world: type[World] = FileStore,
) -> Episode:
    """What a policy would leave that makes these calls and then says so."""
    acted = world(task)
    made = [acted.call(name, arguments) for name, arguments in calls]
    messages = [{"role": "assistant", "content": said}]
    found = Episode(written(messages))
    found.task, found.messages, found.calls, found.files = task, messages, tuple(made), acted.files
    found.turns, found.ended, found.malformed = 1, True, False
    found.tokens = found.all_tokens = 1
    return found


def task(answer: str = "", **state: Any) -> Task:
    one = Prompt(user("do it"), answer=answer, columns={"check": check(**state)})
    return next(iter(tasks_of([one], "files").values()))


def test_the_final_state_is_judged_by_files_and_answer_and_by_nothing_that_is_said() -> None:
    wanted = task("7", start={"a": "3"}, files={"b": "7", "a": None})
    write, remove = ("write_file", {"name": "b", "content": "7"}), ("delete_file", {"name": "a"})
    assert final_state(wanted, episode(wanted, write, remove, said="It is 7.")).right
    claimed = final_state(wanted, episode(wanted, said="b is written and a is gone: 7"))
    assert (claimed.right, claimed.share) == (False, 1 / 3)
    hollow = final_state(wanted, episode(wanted, ("write_file", {"name": "b", "content": ""})))
    assert hollow.named_only
    more = ("write_file", {"name": "notes", "content": "x"})
    aside = final_state(wanted, episode(wanted, write, remove, more, said="7"))
    assert (aside.right, aside.share) == (False, 1.0)  # a file that nobody asked for
    assert not final_state(wanted, "7").right  # one turn, nothing called


def test_an_episode_is_a_text_and_survives_the_way_between_ranks() -> None:
    one = episode(task("7"), ("calculate", {"expression": "3+4"}), said="7")
    again = pickle.loads(pickle.dumps(one))  # noqa: S301 — ours
    assert (again, again.calls, again.final) == ("7", one.calls, "7")


def test_a_verifier_pays_for_the_final_state_and_with_partial_for_its_share() -> None:
    rows = [Prompt(user("do it"), columns={"check": check(files={"a": "1", "b": "2"})})]
    half = episode(
        tasks_of(rows, "files").popitem()[1], ("write_file", {"name": "a", "content": "1"})
    )
    whole = Verifier(VerifierSettings(check_="final_state"), rows)
    parts = Verifier(VerifierSettings(check_="final_state", partial=True), rows)
    assert whole.score([user("do it")], [half]).values == [0.0]
    assert parts.score([user("do it")], [half]).values == [0.5]


@pytest.mark.parametrize(
    ("columns", "environment", "kind"),
    [
        ({}, "files", "no_task"),
        ({"check": json.dumps({"category": "a", "test": "answers"})}, "files", "no_task"),
        ({"check": check(files={"a": "1"})}, "calculator", "bad_task"),
        ({"check": check(start={"a": "1"}, files={"a": "1"})}, "files", "bad_task"),
        ({"check": check(start={"a": 1}, files={"a": "1"})}, "files", "bad_task"),
    ],
    ids=["no check", "another check", "no files there", "done at the start", "no text"],
)
def test_what_is_no_task_is_refused_by_name(
    columns: dict[str, str], environment: str, kind: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        tasks_of([Prompt(user("do it"), columns=columns)], environment)
    assert raised.value.kind == kind


@pytest.mark.parametrize("environment", ["calculator", "files"])
def test_tasks_are_the_same_for_a_seed_and_every_one_can_be_done(environment: str) -> None:
    rows = task_rows(environment, count=40, seed=3)
    assert rows == task_rows(environment, count=40, seed=3)
    assert rows != task_rows(environment, count=40, seed=4)
    assert len({row["prompt"][-1]["content"] for row in rows}) == 40
    prompts = [Prompt(r["prompt"], answer=r.get("answer", ""), columns=r) for r in rows]
    for prompt in prompts:
        one = tasks_of([prompt], environment).popitem()[1]
        assert read_check(prompt.columns["check"], answer=prompt.answer).category
        calls = [
            ("delete_file", {"name": name})
            if text is None
            else ("write_file", {"name": name, "content": text})
            for name, text in one.state.files.items()
        ]
        assert final_state(one, episode(one, *calls, said=one.answer)).right
        assert not final_state(one, episode(one, said="I have done it.")).right


def test_an_honest_record_can_be_repeated() -> None:
    one = episode(
        task(files={"a": "1"}),
        ("read_file", {"name": "a"}),
        ("write_file", {"name": "a", "content": "1"}),
    )
    assert replays(one, "files")
    assert set(WORLDS) == {"calculator", "files"}
