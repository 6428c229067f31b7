"""Parquet files and Arrow streams, read in batches without loading the file.

Their bytes say where each value lies, so a batch is checked in full before a value is taken from
it; and one value may be said to fill a million rows, so values are taken a few at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apps.labeling.formats.records import (
    FileLimits,
    FormatError,
    Records,
    columns_check,
    of_the_machine,
)

_PARQUET_ROWS = 64  # of a batch; a dictionary is written out for as many
_SLICE_BYTES = 4_000_000
_BUFFER = 1 << 20


def parquet(path: Path, limits: FileLimits) -> Records:
    """Raises FormatError for a damaged file."""
    with _reading("Parquet"), pa.OSFile(str(path)) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
        columns_check(file.schema_arrow.names, limits)
        batches = file.iter_batches(batch_size=_PARQUET_ROWS, use_threads=False)
        yield from _numbered(batches, limits)


def arrow(path: Path, limits: FileLimits) -> Records:
    """An Arrow IPC stream (as `datasets` writes) or file. Raises FormatError when damaged."""
    # Not mapped into memory: what is wrong with a mapped file ends the process.
    with _reading("Arrow"), pa.OSFile(str(path)) as source:
        yield from _numbered(_batches(source, limits), limits)


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Whatever the library raises over a file is the file's fault, but for a want of memory."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        if of_the_machine(error):
            raise
        raise FormatError(f"The {kind} file cannot be read: {_first_line(error)}.") from None


def _batches(source: pa.NativeFile, limits: FileLimits) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source, options=options)
        columns_check(reader.schema.names, limits)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        reader = pa.ipc.open_stream(source, options=options)
        columns_check(reader.schema.names, limits)
        yield from reader


def _numbered(batches: Iterator[pa.RecordBatch], limits: FileLimits) -> Records:
    number = decoded = 0
    for batch in batches:
        batch.validate(full=True)
        decoded += batch.nbytes
        if decoded > limits.decoded:
            raise FormatError(f"It unpacks to more than {limits.decoded / 1e9:g} GB.")
        size = _slice_rows(batch)
        for start in range(0, batch.num_rows, size):
            for record in batch.slice(start, size).to_pylist():
                number += 1
                yield number, {name: _plain(value) for name, value in record.items()}


def _slice_rows(batch: pa.RecordBatch) -> int:
    """How many rows become Python's values at a time. Where rows may share their bytes, the size
    of the batch tells nothing of theirs."""
    shares = ("dictionary", "view", "run_end")
    if any(word in str(column.type) for column in batch.columns for word in shares):
        return 8
    row = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(1000, _SLICE_BYTES // row))


def _plain(value: Any) -> Any:
    """JSON's types: dates as ISO text, bytes as their length, structs without empty members."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _first_line(error: Exception) -> str:
    """What the library says, without a word that is missing where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200].rstrip(".")
