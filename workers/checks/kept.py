"""The answers a run kept, as its file rollouts.jsonl has them. No torch."""

import json
import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from measures.messages import Messages
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.snapshot import as_drawn

ROLE = "rollouts"


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """One answer of a run's own batches. `id`: step and place within it, as pages name it."""

    id: str
    step: int
    prompt: Messages
    response: str
    tokens: int
    ended: bool
    reward: float | None  # raw, as the run was given it
    logprob: float | None  # nats of the sequence, by the policy that drew it
    kl: float | None  # nats of the sequence against the reference, as the run had it
    temperature: float

    @property
    def words(self) -> str:
        """The last message of the prompt."""
        return self.prompt[-1]["content"] if self.prompt else ""


def read_kept(context: RunContext, *, last: int) -> list[KeptAnswer]:
    """The `last` newest answers, oldest first. Raises `RecipeError`: damaged_input where the file
    is not what it was named by, bad_data where a line does not fit, no_rows where it is empty."""
    rows: deque[tuple[int, int, dict[str, Any]]] = deque(maxlen=last)
    places: Counter[Any] = Counter()
    with context.input_file(ROLE).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = _object(line, number)
                rows.append((number, places[str(row.get("step"))], row))
                places[str(row.get("step"))] += 1
    if not rows:
        raise RecipeError("no_rows", Fault.DATA, "the run kept no answers")
    return [_answer(row, number, place) for number, place, row in rows]


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise _bad(number, f"is no JSON ({error})") from error
    if not isinstance(row, dict):
        raise _bad(number, "is no object")
    return row


def _answer(row: dict[str, Any], number: int, place: int) -> KeptAnswer:
    try:
        step = int(row["step"])
        return KeptAnswer(
            id=f"{step}/{place}",
            step=step,
            prompt=[{"role": m["role"], "content": m["content"]} for m in row["prompt"]],
            response=as_drawn(str(row["response"]), bool(row.get("ended", True))),
            tokens=int(row["tokens"]),
            ended=bool(row.get("ended", True)),
            reward=_number(row.get("reward")),
            logprob=_number(row.get("logprob")),
            kl=_number(row.get("kl")),
            temperature=float(row.get("temperature", 1.0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(number, f"is no kept answer ({error!r})") from error


def _number(value: Any) -> float | None:
    """NaN stays NaN, for a reward that is NaN must be seen."""
    return None if value is None else float(value)


def _bad(number: int, what: str) -> RecipeError:
    return RecipeError("bad_data", Fault.DATA, f"rollouts.jsonl line {number}: {what}")


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
