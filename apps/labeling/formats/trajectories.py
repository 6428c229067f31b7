"""Runs of agents, one a row: those of one task are compared with each other.

A row is a log (`conversations.log_from`) as a whole, or has one in a column. Runs belong to one
task where they begin with the same words of the user; `group`, where a column has it, says it
otherwise. What they share at the beginning is the prompt (`mapping.split_common`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from apps.labeling.formats.completions import Completion, paired, task_of
from apps.labeling.formats.conversations import Log, is_log, log_from
from apps.labeling.formats.mapping import Mapper, mapping_of, split_common
from apps.labeling.formats.records import (
    COMMON,
    TOGETHER,
    BadValue,
    Converted,
    Options,
    Record,
    RecordFault,
    is_blank,
    number_from,
)

KEY, LABEL = "trajectories", "runs of agents (ATIF, OpenAI, Anthropic, OpenTelemetry)"
FIELDS = ("trajectory", "reward", *COMMON)
REQUIRED = ("trajectory",)
ROW = "(the row itself)"  # the column that stands for all of a row


def fits(columns: Iterable[str], sample: Iterable[Record]) -> bool:
    """Files whose rows are logs, and are no pairs or demonstrations of plain messages."""
    columns, rows = tuple(columns), list(sample)
    found = mapping_of(Options(), ("trajectory",), columns).get("trajectory")
    if found is not None:
        return bool(rows) and all(
            isinstance(row.get(found), Mapping) and is_log(row[found]) for row in rows
        )
    pairs = mapping_of(Options(), ("response_a", "chosen", "completions"), columns)
    return bool(rows) and not pairs and all(is_log(row) for row in rows)


def choices(sample: Iterable[Record], columns: Iterable[str]) -> tuple[str, ...]:
    rows = list(sample)
    whole = (ROW,) if rows and all(is_log(row) for row in rows) else ()
    return (*whole, *columns)


def mapper(options: Options, columns: Iterable[str]) -> Mapper:
    columns = tuple(columns)
    if ROW in columns and "trajectory" not in options.mapping:
        chosen = {**options.mapping, "trajectory": ROW, "tools": "", "metadata": "", "source": ""}
        options = replace(options, mapping=chosen)
    return Mapper(options, FIELDS, columns)


@dataclass(frozen=True, slots=True)
class _Run:
    number: int
    log: Log
    common: dict[str, Any]
    score: Any


def convert(number: int, record: Record, read: Mapper) -> Iterator[Converted]:
    """Of a row alone only what is wrong with it can be said."""
    try:
        _run(number, record, read)
    except BadValue as error:
        yield Converted(number, fault=RecordFault(error.field, error.message))


def together(records: Iterable[tuple[int, Record]], read: Mapper) -> Iterator[Converted]:
    """Comparisons, or tasks with all runs, once all rows are read. A run without another of its
    task is a fault of its row."""
    tasks: dict[str, list[_Run]] = {}
    for number, record in records:
        try:
            run = _run(number, record, read)
        except BadValue as error:
            yield Converted(number, fault=RecordFault(error.field, error.message))
            continue
        tasks.setdefault(_task_key(run), []).append(run)
    for key, runs in tasks.items():
        if len(runs) < 2:
            alone = "is the only run of its task; a comparison needs two"
            yield Converted(runs[0].number, fault=RecordFault("trajectory", alone))
            continue
        yield from _compared(key, runs, read.options)


def _run(number: int, record: Record, read: Mapper) -> _Run:
    column = read.mapping.get("trajectory", "")
    value = record if column == ROW else record.get(column)
    if is_blank(value):
        raise BadValue("trajectory", "is missing")
    log = log_from(value)
    if not any(message.get("role") == "assistant" for message in log.messages):
        raise BadValue("trajectory", "has no turn of the agent")
    scored = read.value(record, "reward")
    if column == ROW:
        common = read.common(record, without=tuple(record))
        named = ("id", "group", "topic", "language")
        about = {name: record[name] for name in named if name in record}
        common |= {name: value for name, value in about.items() if isinstance(value, str | int)}
    else:
        common = read.common(record)
    return _Run(number, log, common, scored)


def _task_key(run: _Run) -> str:
    if group := run.common.get("group"):
        return str(group)
    users = (m for m in run.log.messages if m.get("role") == "user")
    first = next(users, run.log.messages[0])
    return " ".join(str(first.get("content")).split())


def _compared(key: str, runs: list[_Run], options: Options) -> Iterator[Converted]:
    answers = [_completion(run) for run in runs]
    last = runs[-1].number
    if options.pairing in TOGETHER:
        try:
            yield Converted(last, _all_in_one(runs, answers, options))
        except BadValue as error:
            yield Converted(last, fault=RecordFault(error.field, error.message))
        return
    try:
        pairs = paired(answers, options, key=key)
    except BadValue as error:
        yield Converted(last, fault=RecordFault("reward", error.message))
        return
    for i, j in pairs:
        one, other = runs[i], runs[j]
        try:
            prompt, a, b = split_common(one.log.messages, other.log.messages, where="trajectory")
        except BadValue as error:
            yield Converted(other.number, fault=RecordFault(error.field, error.message))
            continue
        row = {k: v for k, v in one.common.items() if k != "id"}
        row |= {"prompt": prompt, "response_a": a, "response_b": b}
        if tools := one.log.tools or other.log.tools:
            row["tools"] = tools
        names = [run.common.get("id") for run in (one, other)]
        if all(name is not None for name in names):
            row["id"] = f"{names[0]}:{names[1]}"
        for side, run in (("a", one), ("b", other)):
            if run.log.model:
                row[f"model_{side}"] = run.log.model
            about = dict(run.log.about)
            if run.score is not None:
                about["reward"] = run.score
            if about:
                row[f"metadata_{side}"] = {"trajectory": about}
        yield Converted(other.number, row)


def _all_in_one(runs: list[_Run], answers: list[Completion], options: Options) -> dict[str, Any]:
    first = runs[0].log.messages
    splits = (split_common(first, run.log.messages, where="trajectory") for run in runs[1:])
    n = min(len(shared) for shared, *_ in splits)
    cut = [
        Completion(run.log.messages[n:], answer.model, answer.score, answer.rating)
        for run, answer in zip(runs, answers, strict=True)
    ]
    common = dict(runs[0].common)
    if runs[0].log.tools:
        common["tools"] = runs[0].log.tools
    return task_of(first[:n], cut, common, options)


def _completion(run: _Run) -> Completion:
    score = number_from(run.score)
    usable = isinstance(score, int | float) and not isinstance(score, bool)
    return Completion(run.log.messages, run.log.model, float(score) if usable else None, run.score)
