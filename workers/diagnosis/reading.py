"""Metrics files of runs trained elsewhere, read into curves. Standard library only.

found = read("trainer_state.json", data)    # raises ReadingError with every row that is wrong
found.series["reward"]                      # [(step, value), …]
"""

import csv
import io
import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Rows of metrics with a step, gathered into curves; what is wrong with them is said row by row.

MOST_METRICS, MOST_POINTS, MOST_ERRORS = 1000, 3_000_000, 20
LONGEST_NAME = 200
MOST_STEPS = 2**53
# Columns that say where a row belongs, the surest first. Their values are the step.
STEP_NAMES = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "_step",
    "global_steps",
    "time/total_timesteps",
    "total_timesteps",
    "iteration",
    "steps",
)
# What trackers write beside the metrics: clocks and counters of their own.
OF_TRACKERS = frozenset(
    {"_timestamp", "_runtime", "_wandb", "wall_time", "timestamp", "time", "Wall time"}
)
_WORDS = {
    "nan": "nan",
    "inf": "inf",
    "+inf": "inf",
    "-inf": "-inf",
    "infinity": "inf",
    "-infinity": "-inf",
}

Value = float | str  # "nan", "inf", "-inf" as words, so that they are seen rather than lost
Point = tuple[int, Value]


@dataclass(frozen=True, slots=True)
class RowError:
    """`row` counts from 1, as an editor shows it; 0 is the whole file."""

    row: int
    message: str

    def __str__(self) -> str:
        return f"Row {self.row:,}: {self.message}" if self.row else self.message


class ReadingError(Exception):
    """The file cannot be read; `errors` are the first of what is wrong with it."""

    def __init__(self, errors: Iterable[RowError], *, more: int = 0) -> None:
        self.errors, self.more = list(errors), more
        text = " ".join(str(one) for one in self.errors)
        super().__init__(text + (f" And {more:,} more." if more else ""))


def refused(message: str, row: int = 0) -> ReadingError:
    return ReadingError([RowError(row, message)])


@dataclass(frozen=True, slots=True)
class Read:
    """`series` under the names of the file, by step; `config` what the file says of the run;
    `notes` what a reader should know of it."""

    format: str
    series: dict[str, list[Point]]
    config: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return sum(map(len, self.series.values()))


class Curves:
    """Takes points one by one. A step that comes twice keeps its last value, as after a restart."""

    def __init__(self) -> None:
        self._curves: dict[str, dict[int, Value]] = {}
        self._errors: list[RowError] = []
        self._more = self._points = 0
        self._texts: dict[str, tuple[int, str]] = {}

    def error(self, row: int, message: str) -> None:
        if len(self._errors) < MOST_ERRORS:
            self._errors.append(RowError(row, message))
        else:
            self._more += 1

    def add(self, row: int, step: int, name: str, value: Any) -> None:
        """A value that is no number is an error only where its column has numbers elsewhere: a
        column of texts is no curve."""
        number = number_of(value)
        if number is None:
            if value is not None and value != "":
                self._texts.setdefault(name, (row, repr(value)[:40]))
            return
        curve = self._curves.get(name)
        if curve is None:
            self._check_name(row, name)
            curve = self._curves[name] = {}
        curve[step] = number
        self._points += 1
        if self._points > MOST_POINTS:
            raise refused(
                f"The file has more than {MOST_POINTS:,} points; thin it before importing."
            )

    def done(self) -> tuple[dict[str, list[Point]], tuple[str, ...]]:
        """(curves, notes). Raises `ReadingError` with everything that was wrong."""
        for name, (row, shown) in sorted(self._texts.items(), key=lambda item: item[1]):
            if name in self._curves:
                self.error(row, f"{name!r} is {shown}, which is no number.")
        if self._errors:
            raise ReadingError(sorted(self._errors, key=lambda one: one.row), more=self._more)
        if not self._curves:
            raise refused("The file has no figure with a step.")
        left = sorted(set(self._texts) - set(self._curves))
        notes = (f"Left out, having no numbers: {', '.join(left[:20])}.",) if left else ()
        return {name: sorted(curve.items()) for name, curve in sorted(self._curves.items())}, notes

    def _check_name(self, row: int, name: str) -> None:
        if not name or len(name) > LONGEST_NAME:
            raise refused(
                f"A metric's name must have 1 to {LONGEST_NAME} characters; one has {len(name)}.",
                row,
            )
        if len(self._curves) >= MOST_METRICS:
            raise refused(f"The file has more than {MOST_METRICS:,} metrics.", row)


def number_of(value: Any) -> Value | None:
    """A finite number, one of the words nan, inf, -inf, or None for what is no number."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        word = _WORDS.get(text.lower())
        if word is not None:
            return word
        try:
            value = float(text)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def step_of(value: Any) -> int | None:
    """A whole number from 0 on; None for anything else."""
    number = number_of(value)
    if not isinstance(number, float) or number != int(number) or not 0 <= number < MOST_STEPS:
        return None
    return int(number)


def step_column(names: Iterable[str]) -> str | None:
    """The column that holds the step; upper and lower case alike."""
    known = {name.strip().lower(): name for name in names}
    return next((known[name] for name in STEP_NAMES if name in known), None)


def rows_read(rows: Iterable[tuple[int, Mapping[str, Any]]], curves: Curves) -> None:
    """Rows of {name: value} that each say their step under one of `STEP_NAMES`."""
    for row, metrics in rows:
        column = step_column(metrics)
        if column is None:
            curves.error(row, f"no step: none of {', '.join(STEP_NAMES[:4])} … is in it.")
            continue
        step = step_of(metrics[column])
        if step is None:
            curves.error(row, f"the step {metrics[column]!r} is no whole number from 0 on.")
            continue
        for name, value in metrics.items():
            if name != column and name not in OF_TRACKERS:
                curves.add(row, step, name, value)


MOST_BYTES = 64 * 1024**2
TRAINER_STATE, LOG_HISTORY, BY_METRIC = "trainer_state.json", "log history", "JSON by metric"
LINES, WIDE, LONG = "JSON Lines", "CSV", "CSV, one value a row"
# Of a trainer_state.json: what says something of the run.
_STATE_FIELDS = (
    "max_steps",
    "num_train_epochs",
    "train_batch_size",
    "logging_steps",
    "eval_steps",
    "best_metric",
    "best_model_checkpoint",
    "is_hyper_param_search",
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


__all__ = ["Read", "ReadingError", "RowError", "read"]


# --- TensorBoard event files, without TensorBoard ---
#
# The file is a row of records: length (u64), its checksum, the record, its checksum; checksums are
# CRC-32C, rotated and shifted as TFRecord wants. A record is a protobuf message `Event`, of which
# the fields `step` and `summary.value.{tag, simple_value, tensor}` are read, the rest is passed
# over. A last record that breaks off is left out: that is how a file looks while it is written.

FORMAT = "TensorBoard"
MOST_EVENT_BYTES = 32 * 1024**2
_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_HEAD = struct.Struct("<QI")
# TensorProto: dtype -> (format of tensor_content, field of its packed values)
_DTYPES: dict[int | bytes, tuple[str, int]] = {
    1: ("<f", 5),
    2: ("<d", 6),
    3: ("<i", 7),
    9: ("<q", 10),
}


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli), as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def looks_like_events(data: bytes) -> bool:
    """Its first eight bytes match their checksum: no text does that."""
    if len(data) < _HEAD.size:
        return False
    _, crc = _HEAD.unpack_from(data)
    return masked_crc(data[:8]) == crc


def read_events(data: bytes) -> Read:
    """Raises `ReadingError` for a record whose checksum is wrong, naming it."""
    if len(data) > MOST_EVENT_BYTES:
        size = len(data) / 1e6
        raise refused(
            f"The event file has {size:.0f} MB; at most {MOST_EVENT_BYTES / 1e6:.0f} MB are read. "
            "Histograms and texts take most of such a file; export its scalars as CSV."
        )
    curves = Curves()
    notes: list[str] = []
    for number, record in _records(data, notes):
        try:
            step, scalars = _event(record)
        except (IndexError, ValueError, struct.error, UnicodeDecodeError) as error:
            raise refused("The record is no TensorBoard event.", number) from error
        for tag, value in scalars:
            if step < 0:
                curves.error(number, f"the step of {tag!r} is {step}.")
            else:
                curves.add(number, step, tag, value)
    series, more = curves.done()
    return Read(FORMAT, series, {}, (*notes, *more))


def _records(data: bytes, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    at, number = 0, 0
    while at < len(data):
        number += 1
        if at + _HEAD.size > len(data):
            break
        length, crc = _HEAD.unpack_from(data, at)
        if masked_crc(data[at : at + 8]) != crc:
            raise refused("The length of the record does not match its checksum.", number)
        start = at + _HEAD.size
        at = start + length + 4
        if at > len(data):
            break
        record = data[start : start + length]
        if masked_crc(record) != struct.unpack_from("<I", data, start + length)[0]:
            raise refused("The record does not match its checksum: the file is damaged.", number)
        yield number, record
    else:
        return
    notes.append(f"Record {number:,}, the last, breaks off and was left out.")


def _event(record: bytes) -> tuple[int, list[tuple[str, float]]]:
    """(step, [(tag, value)]) of an Event."""
    step, found = 0, []
    for key, value in _fields(record):
        if key == 2 and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif key == 5 and isinstance(value, bytes):
            found += [
                one
                for inner, part in _fields(value)
                if inner == 1 and isinstance(part, bytes) and (one := _value(part)) is not None
            ]
    return step, found


def _value(message: bytes) -> tuple[str, float] | None:
    """(tag, number) of a Summary.Value that is a scalar; None of one that is something else."""
    tag, number = "", None
    for key, value in _fields(message):
        if key == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif key == 2 and isinstance(value, bytes):
            number = struct.unpack("<f", value)[0]
        elif key == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return None if number is None else (tag, number)


def _tensor(message: bytes) -> float | None:
    """The number of a tensor that has exactly one."""
    fields = dict(_fields(message))
    layout, packed = _DTYPES.get(fields.get(1, 0), ("", 0))
    content, listed = fields.get(4), fields.get(packed)
    if not layout:
        return None
    if not content and isinstance(listed, bytes) and layout in ("<f", "<d"):
        content = listed
    if isinstance(content, bytes) and content:
        fits = len(content) == struct.calcsize(layout)
        return float(struct.unpack(layout, content)[0]) if fits else None
    if isinstance(listed, bytes) and listed:
        whole = len(listed)
        listed, end = _varint(listed, 0)
        if end < whole:
            return None
    if not isinstance(listed, int):
        return None
    return float(listed - 2**64 if listed >= 2**63 else listed)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message's fields: varints as integers, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        key, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key, value
            continue
        if wire == _BYTES:
            length, at = _varint(message, at)
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire, -1)
        if length < 0 or at + length > len(message):
            raise ValueError("a field reaches beyond its message")
        yield key, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
