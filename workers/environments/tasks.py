"""Tasks for the environments, made from a seed: rows of a file of prompts.

    python -m workers.environments.tasks files --count 200 --seed 0 > tasks.jsonl

Import the file as a dataset of prompts. Each row has a `check` of the final state, and `answer`
where something is to be said at the end.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable
from typing import Any

from workers.config.grpo import CALCULATOR, FILES
from workers.config.suites import FINAL_STATE
from workers.environments.worlds import calculated

Row = dict[str, Any]
_NAMES = ("prices", "counts", "notes", "order", "stock", "visits", "hours", "rooms", "seats")


def task_rows(environment: str, *, count: int, seed: int) -> list[Row]:
    """`count` tasks that ask different things; the same ones for a seed."""
    makers = {CALCULATOR: (_sum,), FILES: (_copy, _total, _tidy)}[environment]
    draw = random.Random(seed)
    found: dict[str, Row] = {}
    while len(found) < count:
        make: Callable[[random.Random], Row] = makers[len(found) % len(makers)]
        row = make(draw)
        found.setdefault(row["prompt"][-1]["content"], row)
    return list(found.values())


def _row(text: str, category: str, answer: str = "", **state: Any) -> Row:
    check = {"category": category, "test": FINAL_STATE, "value": state}
    row: Row = {
        "prompt": [{"role": "user", "content": text}],
        "group": category,
        "check": json.dumps(check, sort_keys=True),
    }
    return row | ({"answer": answer} if answer else {})


def _sum(draw: random.Random) -> Row:
    a, b, c = draw.randint(12, 99), draw.randint(12, 99), draw.randint(2, 9)
    expression = f"({a} {draw.choice('+-')} {b}) * {c}"
    return _row(
        f"What is {expression}? Use the calculator and end with the number.",
        "arithmetic",
        calculated(expression),
    )


def _copy(draw: random.Random) -> Row:
    old, new = draw.sample(_NAMES, 2)
    text = str(draw.randint(100, 9999))
    return _row(
        f"Copy {old}.txt, a number of {len(text)} digits that ends in {text[-2:]}, to {new}.txt.",
        "copy",
        start={f"{old}.txt": text},
        files={f"{new}.txt": text},
    )


def _total(draw: random.Random) -> Row:
    name = draw.choice(_NAMES)
    numbers = [draw.randint(10, 99) for _ in range(3)]
    listed = "\n".join(map(str, numbers))
    return _row(
        f"Add up the 3 numbers of {name}.txt, the first of which is {numbers[0]} and the last "
        f"{numbers[-1]}; write the sum to total.txt and say it.",
        "total",
        str(sum(numbers)),
        start={f"{name}.txt": listed},
        files={"total.txt": str(sum(numbers))},
    )


def _tidy(draw: random.Random) -> Row:
    keep, *gone = draw.sample(_NAMES, 3)
    number = draw.randint(100, 9999)
    start = {f"{name}.txt": str(number) for name in (keep, *gone)}
    return _row(
        f"Delete every file but {keep}.txt, which holds {number}.",
        "tidy",
        start=start,
        files={f"{name}.txt": None for name in gone},
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("environment", choices=(CALCULATOR, FILES))
    parser.add_argument("--count", type=int, default=200, help="how many tasks")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same tasks")
    given = parser.parse_args(arguments)
    for row in task_rows(given.environment, count=given.count, seed=given.seed):
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
