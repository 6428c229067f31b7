"""Points of many metrics as a few bytes: columns of numbers, not a JSON object a step.

A block has a *head* and a *body*. The head names the columns, says where each lies in the body,
what its last number was, whether NaN or an infinity came after that, and when its newest points
arrived, so the newest figures of a run are read without any body. The body is a
row of compressed streams of about 64 kB; a column is a stretch of one of them, so reading two
metrics of fifty unpacks two streams.

No digit is lost: a column is kept as float32 only when each of its values comes back from it
unchanged, otherwise as float64. NaN and the infinities are floats like any other; a value that was
undefined (None) has a bit of its own, so it is never taken for NaN. Whole numbers beyond 2^53 are
the nearest float64, as every JavaScript reader of the events would have them.

Numpy and the standard library only.
"""

import json
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

VERSION = 1
STREAM_BYTES = 64 * 1024  # before compression
_LEVEL = 1  # the mantissas of measurements are noise: higher levels cost time and save 1 %
_HEAD_LEVEL = 3
_STEP, _SINGLE, _DOUBLE = "<i8", "<f4", "<f8"

Value = float | str | None  # "nan", "inf", "-inf" as words; None is undefined at that step
Point = tuple[int, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The points of one metric, in the order in which they were reported.

    steps: (n,) int64. values: (n,) float64, NaN also where undefined. undefined: (n,) bool, or
    None when every value was defined.
    """

    steps: np.ndarray
    values: np.ndarray
    undefined: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def kept(self, index: Any) -> "Column":
        """The points that `index` picks: a slice, a mask or positions."""
        undefined = None if self.undefined is None else self.undefined[index]
        if undefined is not None and not undefined.any():
            undefined = None
        return Column(self.steps[index], self.values[index], undefined)

    def points(self) -> list[Point]:
        """As the contract spells them: (step, number, word or None)."""
        values: list[Value] = self.values.tolist()
        for i in np.flatnonzero(~np.isfinite(self.values)).tolist():
            values[i] = _spelled(values[i])
        if self.undefined is not None:
            for i in np.flatnonzero(self.undefined).tolist():
                values[i] = None
        return list(zip(self.steps.tolist(), values, strict=True))


def _spelled(value: Any) -> str:
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def columns_of(steps: Sequence[int], values: Mapping[str, Sequence[Value]]) -> dict[str, Column]:
    """From a Metrics event's own lists; words and None are read as the contract means them.

    Raises ValueError, TypeError or OverflowError for what is no well-formed event.
    """
    at = np.array(steps, dtype=np.int64)
    # All metrics at once: an array for each would take longer than everything else.
    table = np.array(list(values.values()), dtype=np.float64)
    if not values:
        return {}
    if table.shape != (len(values), *at.shape):
        raise ValueError("not one value for each step")
    holes = np.isnan(table).any(axis=1).tolist()
    return {
        name: _holed(at, row, values[name]) if has_holes else Column(at, row)
        for name, row, has_holes in zip(values, table, holes, strict=True)
    }


def series_columns(series: Mapping[str, Sequence[Point]]) -> dict[str, Column]:
    """From {name: [(step, value), …]}."""
    found: dict[str, Column] = {}
    for name, points in series.items():
        found |= columns_of([step for step, _ in points], {name: [value for _, value in points]})
    return found


def _holed(at: np.ndarray, numbers: np.ndarray, values: Sequence[Value]) -> Column:
    """`values` are what `numbers` were read from: NaN stands there for "nan" and None."""
    undefined = np.array([value is None for value in values], dtype=bool)
    return Column(at, numbers, undefined if undefined.any() else None)


def joined(columns: Sequence[Column]) -> Column:
    """One after the other."""
    if len(columns) == 1:
        return columns[0]
    undefined = None
    if any(one.undefined is not None for one in columns):
        undefined = np.concatenate(
            [
                np.zeros(len(one), dtype=bool) if one.undefined is None else one.undefined
                for one in columns
            ]
        )
    return Column(
        np.concatenate([one.steps for one in columns]),
        np.concatenate([one.values for one in columns]),
        undefined,
    )


def gathered(parts: Iterable[Mapping[str, Column]]) -> dict[str, Column]:
    """The columns of several blocks or events, in their order, under one roof."""
    found: dict[str, list[Column]] = {}
    for part in parts:
        for name, one in part.items():
            found.setdefault(name, []).append(one)
    return {name: joined(columns) for name, columns in found.items()}


# --- packing -----------------------------------------------------------------------------------


def encode(columns: Mapping[str, Column], *, at: float | None = None) -> tuple[bytes, bytes]:
    """(head, body) of these columns; `decode` is its inverse, value by value. `at`: when the newest
    of the points arrived, in Unix seconds."""
    packer = _Packer()
    index_rows: list[list[int]] = []
    rows: dict[str, list[Any]] = {}
    for steps, names in _alike(columns).values():
        deltas = np.diff(steps, prepend=np.int64(0)).astype(_STEP)
        index_rows.append([len(steps), *packer.add(_shuffled(deltas[None])[0].tobytes())])
        values = np.stack([columns[name].values for name in names])
        lasts = _last_numbers(steps, values)
        all_finite = np.isfinite(values).all(axis=1).tolist()
        for width, which in _widths(values):
            planes = _shuffled(values[which].astype(_SINGLE if width == 4 else _DOUBLE))
            for i, packed in zip(which.tolist(), planes, strict=True):
                one = columns[names[i]]
                holes = b"" if one.undefined is None else np.packbits(one.undefined).tobytes()
                place = packer.add(packed.tobytes() + holes)
                row = [len(index_rows) - 1, width, int(one.undefined is not None), *place]
                broken = () if all_finite[i] else _last_broken(one)
                rows[names[i]] = [names[i], *row, *lasts[i], *broken]
    streams, body = packer.done()
    head = {
        "version": VERSION,
        "streams": streams,
        "indexes": index_rows,
        "columns": [rows[name] for name in columns],
    }
    if at is not None:
        head["at"] = at
    text = json.dumps(head, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode(), _HEAD_LEVEL), body


def _alike(columns: Mapping[str, Column]) -> dict[bytes, tuple[np.ndarray, list[str]]]:
    """Columns that were measured at the same steps: (steps, their names)."""
    keys: dict[int, bytes] = {}  # most share the array itself
    found: dict[bytes, tuple[np.ndarray, list[str]]] = {}
    for name, one in columns.items():
        key = keys.setdefault(id(one.steps), b"") or one.steps.tobytes()
        keys[id(one.steps)] = key
        found.setdefault(key, (one.steps, []))[1].append(name)
    return found


def _widths(values: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """[(bytes a value, rows)]: four where float32 gives back the very same numbers, else eight."""
    with np.errstate(over="ignore", invalid="ignore"):
        same = (values.astype(_SINGLE) == values) | np.isnan(values)
    narrow = same.all(axis=1)
    return [(4, np.flatnonzero(narrow)), (8, np.flatnonzero(~narrow))]


def _last_numbers(
    steps: np.ndarray, values: np.ndarray
) -> list[tuple[int, float] | tuple[None, None]]:
    """Of each row (step, value) at the highest step with a number, the last one measured there.
    steps: (n,); values: (k, n)."""
    order = np.argsort(steps, kind="stable")
    finite = np.isfinite(values[:, order])
    if not finite.shape[1]:
        return [(None, None)] * len(values)
    last = order[finite.shape[1] - 1 - finite[:, ::-1].argmax(axis=1)]
    numbers = values[np.arange(len(values)), last].tolist()
    return [
        (step, number) if has_one else (None, None)
        for step, number, has_one in zip(
            steps[last].tolist(), numbers, finite.any(axis=1).tolist(), strict=True
        )
    ]


def _last_broken(one: Column) -> tuple[int, str] | tuple[()]:
    """(step, word) of the point at the highest step, where that is NaN or infinite; of points that
    were undefined nothing is said."""
    order = np.argsort(one.steps, kind="stable")
    if one.undefined is not None:
        order = order[~one.undefined[order]]
    if not len(order) or np.isfinite(one.values[order[-1]]):
        return ()
    return int(one.steps[order[-1]]), _spelled(one.values[order[-1]])


def _shuffled(numbers: np.ndarray) -> np.ndarray:
    """(k, n) numbers -> (k, width, n) bytes: of each row all first bytes, then all second bytes
    and so on. Neighbours share signs and exponents, and zlib sees that only when these lie side
    by side."""
    k, n = numbers.shape
    planes = np.ascontiguousarray(numbers).view(np.uint8).reshape(k, n, numbers.dtype.itemsize)
    return np.ascontiguousarray(planes.transpose(0, 2, 1))


def _unshuffled(raw: memoryview, dtype: str, count: int) -> np.ndarray:
    width = np.dtype(dtype).itemsize
    planes = np.frombuffer(raw, dtype=np.uint8, count=count * width).reshape(width, count)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(count)


def block_fields(columns: Mapping[str, Column], *, at: float | None = None) -> dict[str, Any]:
    """The fields of a row that holds these columns, without its address; {} for no point. `at` as
    of `encode`."""
    columns = {name: one for name, one in columns.items() if len(one)}
    if not columns:
        return {}
    head, body = encode(columns, at=at)
    return {
        "first_step": min(int(one.steps.min()) for one in columns.values()),
        "last_step": max(int(one.steps.max()) for one in columns.values()),
        "points": sum(map(len, columns.values())),
        "head": head,
        "body": body,
    }


class _Packer:
    """Lays stretches of bytes into streams of about `STREAM_BYTES`."""

    def __init__(self) -> None:
        self._open = bytearray()
        self._closed: list[bytes] = []

    def add(self, raw: bytes) -> tuple[int, int]:
        """(stream, offset in it) of `raw`."""
        if self._open and len(self._open) + len(raw) > STREAM_BYTES:
            self._close()
        place = len(self._closed), len(self._open)
        self._open += raw
        return place

    def done(self) -> tuple[list[int], bytes]:
        """(length of each compressed stream, all of them)."""
        self._close()
        return [len(stream) for stream in self._closed], b"".join(self._closed)

    def _close(self) -> None:
        self._closed.append(zlib.compress(bytes(self._open), _LEVEL))
        self._open = bytearray()


# --- unpacking ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """What a block holds, without its values. `at`: when the newest of its points arrived, in Unix
    seconds; None where that was not kept."""

    streams: list[int]
    indexes: list[list[int]]
    columns: list[list[Any]]
    at: float | None = None

    @classmethod
    def read(cls, head: bytes | memoryview) -> "Head":
        data = json.loads(zlib.decompress(head))
        if data["version"] != VERSION:
            raise ValueError(f"a block of metrics of version {data['version']}, not {VERSION}")
        return cls(data["streams"], data["indexes"], data["columns"], data.get("at"))

    @property
    def names(self) -> list[str]:
        return [row[0] for row in self.columns]

    def latest(self) -> dict[str, tuple[int, float]]:
        """name -> (step, value) of the highest step with a number, for those that have one."""
        return {row[0]: (row[6], row[7]) for row in self.columns if row[6] is not None}

    def newest(self, names: Container[str]) -> dict[str, tuple[int, float]]:
        """name -> (step, value) of the highest step with a value, of those in `names`: as `latest`,
        but NaN or an infinity where that is what was measured last."""
        found: dict[str, tuple[int, float]] = {}
        for row in self.columns:
            if row[0] not in names:
                continue
            if len(row) > 8:
                found[row[0]] = row[8], float(row[9])
            elif row[6] is not None:
                found[row[0]] = row[6], row[7]
        return found


def decode(
    head: bytes | memoryview, body: bytes | memoryview, *, names: Iterable[str] | None = None
) -> dict[str, Column]:
    """The columns of a block, or those of `names` alone. Metrics measured at the same steps share
    one array of steps."""
    read = Head.read(head)
    wanted = None if names is None else set(names)
    ends = np.cumsum([0, *read.streams]).tolist()
    opened: dict[int, memoryview] = {}

    def stretch(stream: int, offset: int) -> memoryview:
        if stream not in opened:
            raw = zlib.decompress(memoryview(body)[ends[stream] : ends[stream + 1]])
            opened[stream] = memoryview(raw)
        return opened[stream][offset:]

    steps: dict[int, np.ndarray] = {}
    found: dict[str, Column] = {}
    for name, index, width, has_holes, stream, offset, *_ in read.columns:
        if wanted is not None and name not in wanted:
            continue
        count, *place = read.indexes[index]
        if index not in steps:
            steps[index] = np.cumsum(_unshuffled(stretch(*place), _STEP, count))
        raw = stretch(stream, offset)
        numbers = _unshuffled(raw, _SINGLE if width == 4 else _DOUBLE, count)
        undefined = None
        if has_holes:
            bits = np.frombuffer(raw, np.uint8, (count + 7) // 8, count * width)
            undefined = np.unpackbits(bits, count=count).astype(bool)
        found[name] = Column(steps[index], numbers.astype(np.float64), undefined)
    return found
