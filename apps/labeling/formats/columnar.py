"""Parquet files and Arrow streams, read in batches without loading the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apps.labeling.formats.records import FormatError, Records

_BATCH = 1000  # records


def parquet(path: Path) -> Records:
    """Raises FormatError for a damaged file."""
    try:
        with pq.ParquetFile(path) as file:
            yield from _numbered(file.iter_batches(batch_size=_BATCH))
    except pa.ArrowException as error:
        raise FormatError(f"The Parquet file cannot be read: {_first_line(error)}.") from None


def parquet_rows(path: Path) -> int:
    try:
        return pq.read_metadata(path).num_rows
    except pa.ArrowException as error:
        raise FormatError(f"The Parquet file cannot be read: {_first_line(error)}.") from None


def arrow(path: Path) -> Records:
    """An Arrow IPC stream (as `datasets` writes) or file. Raises FormatError when damaged."""
    try:
        with pa.memory_map(str(path)) as source:
            yield from _numbered(_batches(source))
    except pa.ArrowException as error:
        raise FormatError(f"The Arrow file cannot be read: {_first_line(error)}.") from None


def _batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    if source.read(6) == b"ARROW1":
        source.seek(0)
        reader = pa.ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        source.seek(0)
        yield from pa.ipc.open_stream(source)


def _numbered(batches: Iterator[pa.RecordBatch]) -> Records:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH):
            for record in batch.slice(start, _BATCH).to_pylist():
                number += 1
                yield number, {name: _plain(value) for name, value in record.items()}


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
    return str(error).splitlines()[0][:200].rstrip(".")
