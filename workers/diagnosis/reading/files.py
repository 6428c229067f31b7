"""Which format a file has, by its content before its name; and the text formats."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from workers.diagnosis.reading.rows import (
    Curves,
    Read,
    refused,
    rows_read,
    step_column,
    step_of,
)
from workers.diagnosis.reading.tensorboard import looks_like_events, read_events

MOST_BYTES = 64 * 1024**2
TRAINER_STATE, LOG_HISTORY, BY_METRIC = "trainer_state.json", "log history", "JSON by metric"
LINES, WIDE, LONG = "JSON Lines", "CSV", "CSV, one value a row"
# Of a trainer_state.json: what says something of the run.
_STATE_FIELDS = (
    *("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps"),
    *("best_metric", "best_model_checkpoint", "is_hyper_param_search"),
)
_METRIC, _VALUE = ("metric", "tag", "name", "key"), ("value",)


def read(name: str, data: bytes) -> Read:
    """Curves of a metrics file. Raises `ReadingError` with every row that is wrong."""
    if not data:
        raise refused("The file is empty.")
    if len(data) > MOST_BYTES:
        size = len(data) / 1e6
        raise refused(f"The file has {size:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read.")
    if looks_like_events(data):
        return read_events(data)
    if "tfevents" in name:
        raise refused(
            "The name says TensorBoard, and the content is no file of TensorBoard events: its "
            "first record does not match its checksum."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise refused(
            "The file is neither text in UTF-8 nor a TensorBoard event file.", row
        ) from error
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return _json(text)
    return _csv(text)


def _json(text: str) -> Read:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{"):
            return _lines(text)
        raise refused(f"The JSON breaks off or is wrong: {error.msg}.", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise refused(f"The JSON cannot be read: {_why(error)}.") from error
    if isinstance(data, list):
        return _history(data, LOG_HISTORY, {})
    if isinstance(data.get("log_history"), list):
        config = {name: data[name] for name in _STATE_FIELDS if data.get(name) is not None}
        return _history(data["log_history"], TRAINER_STATE, config)
    if data and all(isinstance(one, Mapping) for one in data.values()):
        return _by_metric(data)
    return _lines(text)


def _history(rows: list[Any], format_: str, config: dict[str, Any]) -> Read:
    curves = Curves()
    rows_read(_objects(enumerate(rows, 1), curves), curves)
    series, notes = curves.done()
    return Read(format_, series, config, notes)


def _lines(text: str) -> Read:
    curves = Curves()
    rows_read(_objects(_decoded(text, curves), curves), curves)
    series, notes = curves.done()
    return Read(LINES, series, {}, notes)


def _decoded(text: str, curves: Curves) -> Iterator[tuple[int, Any]]:
    for row, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield row, json.loads(line)
        except json.JSONDecodeError as error:
            curves.error(row, f"no JSON: {error.msg} at character {error.colno}.")
        except (ValueError, RecursionError) as error:
            curves.error(row, f"no JSON: {_why(error)}.")


def _why(error: ValueError | RecursionError) -> str:
    deep = isinstance(error, RecursionError)
    return "it is nested too deeply" if deep else "a number has thousands of digits"


def _objects(
    rows: Iterator[tuple[int, Any]] | enumerate[Any], curves: Curves
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for row, one in rows:
        if isinstance(one, Mapping):
            yield row, one
        else:
            curves.error(row, "no object of names and values.")


def _by_metric(data: Mapping[str, Mapping[str, Any]]) -> Read:
    """{"train/reward": {"1": 0.5, …}, …}"""
    curves = Curves()
    for row, (name, points) in enumerate(data.items(), 1):
        for at, value in points.items():
            step = step_of(at)
            if step is None:
                curves.error(row, f"the step {at!r} of {name!r} is no whole number from 0 on.")
            else:
                curves.add(row, step, name, value)
    series, notes = curves.done()
    return Read(BY_METRIC, series, {}, notes)


def _csv(text: str) -> Read:
    sample = text[:4096].split("\n", 1)[0]
    delimiter = max(",;\t", key=sample.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = [name.strip().removeprefix("'") for name in next(reader)]
    except (StopIteration, csv.Error) as error:
        raise refused("The first row must hold the names of the columns.", 1) from error
    column = step_column(header)
    if column is None:
        raise refused(
            f"No column holds the step. It may be called step or global_step; there are: "
            f"{', '.join(header[:12])}.",
            1,
        )
    if len(set(header)) < len(header):
        twice = sorted(name for name, times in Counter(header).items() if times > 1)[:12]
        raise refused(f"Two columns have one name: {', '.join(twice)}.", 1)
    lower = {name.lower(): name for name in header}
    metric = next((lower[name] for name in _METRIC if name in lower), None)
    value = next((lower[name] for name in _VALUE if name in lower), None)
    curves = Curves()
    rows = _cells(reader, header, curves)
    if metric and value:
        _long(rows, (column, metric, value), curves)
    else:
        rows_read(rows, curves)
    series, notes = curves.done()
    return Read(LONG if metric and value else WIDE, series, {}, notes)


def _cells(
    reader: Any, header: list[str], curves: Curves
) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                has = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
                curves.error(reader.line_num, f"{has}, where the header has {len(header)}.")
            else:
                yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        curves.error(reader.line_num, f"no CSV: {error}.")


def _long(
    rows: Iterator[tuple[int, Mapping[str, str]]], columns: tuple[str, str, str], curves: Curves
) -> None:
    at, metric, value = columns
    for row, cells in rows:
        step, name = step_of(cells[at]), cells[metric].strip()
        if step is None:
            curves.error(row, f"the step {cells[at]!r} is no whole number from 0 on.")
        elif not name:
            curves.error(row, "no name of a metric.")
        else:
            curves.add(row, step, name, cells[value])
