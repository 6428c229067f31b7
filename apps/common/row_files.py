"""Rows as a file that somebody downloads: JSON Lines, Parquet, CSV."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from apps.common.http import FileStream
from apps.common.spreadsheet import csv_lines
from measures.messages import said

Row = dict[str, Any]

ROW_FORMATS = ("jsonl", "parquet", "csv")
MEDIA = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "zip": "application/zip",
}
# What an operation of the API says of its answer.
FILE_SENT: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The file",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}
_IN_MEMORY = 8_000_000  # bytes kept in memory; the rest goes to disk
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Export:
    """A file to send. `content` is an open file or lines of text; the caller closes it."""

    name: str
    media_type: str
    content: IO[bytes] | Iterable[bytes]


def download_response(sent: Export) -> HttpResponseBase:
    if hasattr(sent.content, "read"):
        return FileResponse(
            sent.content, as_attachment=True, filename=sent.name, content_type=sent.media_type
        )
    response = StreamingHttpResponse(sent.content, content_type=sent.media_type)
    response["Content-Disposition"] = f'attachment; filename="{sent.name}"'
    return response


def resumable_response(
    request: HttpRequest,
    *,
    name: str,
    size: int,
    etag: str,
    chunks: Callable[[int], Iterator[bytes]],
) -> HttpResponseBase:
    """A file of `size` bytes that is made while it is sent, `chunks` from a byte on: from the first
    one, or from where the request continues (`Range: bytes=N-`), if it continues this very file
    (`If-Range`)."""
    asked = re.fullmatch(r"bytes=(\d{1,15})-", request.headers.get("Range", ""))
    if request.headers.get("If-Range", etag) != etag:
        asked = None
    start = int(asked[1]) if asked else 0
    if start > size or (asked and start == size):
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    response = FileStream(chunks(start), content_type="application/octet-stream")
    response["Content-Disposition"] = content_disposition_header(True, name)
    response["Content-Length"] = str(size - start)
    response["Accept-Ranges"], response["ETag"] = "bytes", etag
    if asked:
        response.status_code = 206
        response["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    return response


def rows_content(rows: Iterable[Row], schema: pa.Schema, form: str) -> IO[bytes] | Iterable[bytes]:
    """One of ROW_FORMATS. Lines are made as they are sent; a Parquet file is whole before its first
    byte is, on disk where it is large."""
    if form == "csv":
        return spreadsheet(rows, schema.names)
    if form == "jsonl":
        return json_lines(rows)
    file = scratch_file()
    parquet_write(rows, schema, file)
    file.seek(0)
    return file


def scratch_file() -> IO[bytes]:
    return SpooledTemporaryFile(max_size=_IN_MEMORY)


def json_line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def json_lines(rows: Iterable[Row]) -> Iterator[bytes]:
    return (json_line(row).encode("utf-8") for row in rows)


# A list of messages that hold more than a role and a text: each is one JSON value, as `datasets`
# reads it (`List(Json())`).
JSON_LIST = pa.list_(pa.json_())


def rows_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """As `Table.from_pylist`, which knows no columns of JSON."""
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def holds_json(of: pa.DataType) -> bool:
    return isinstance(of, pa.JsonType) or (pa.types.is_list(of) and holds_json(of.value_type))


def _column(values: list[Any], of: pa.DataType) -> pa.Array:
    if not holds_json(of):
        return pa.array(values, type=of)
    return _as_json(pa.array([_written(value, of) for value in values], type=_stored(of)), of)


def _stored(of: pa.DataType) -> pa.DataType:
    return pa.list_(_stored(of.value_type)) if pa.types.is_list(of) else pa.string()


def _written(value: Any, of: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(of):
        return [_written(one, of.value_type) for one in value]
    return json.dumps(value, ensure_ascii=False)


def _as_json(array: pa.Array, of: pa.DataType) -> pa.Array:
    if pa.types.is_list(of):
        inner = _as_json(array.values, of.value_type)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, inner, type=of, mask=mask)
    return pa.ExtensionArray.from_storage(of, array)


def parquet_write(rows: Iterable[Row], schema: pa.Schema, file: IO[bytes]) -> int:
    """Returns how many rows there were."""
    n = 0
    with pq.ParquetWriter(file, schema) as writer:
        for part in _parts(rows):
            writer.write_table(rows_table(part, schema))
            n += len(part)
    return n


def both_write(
    rows: Iterable[Row], schema: pa.Schema, *, lines: IO[bytes], table: IO[bytes]
) -> int:
    """JSON Lines and Parquet of the same rows in one pass; returns how many."""
    n = 0
    with pq.ParquetWriter(table, schema) as writer:
        for part in _parts(rows):
            lines.write(b"".join(json_lines(part)))
            writer.write_table(rows_table(part, schema))
            n += len(part)
    return n


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while part := list(islice(left, _BATCH)):
        yield part


def spreadsheet(rows: Iterable[Row], columns: list[str]) -> Iterator[bytes]:
    """Conversations become plain text; everything else stays what it is, guarded."""
    for line in csv_lines(columns, map(_flat, rows)):
        yield line.encode("utf-8")


def first_and_all(rows: Iterable[Row]) -> Iterator[Row] | None:
    """The same rows, or None where there is none."""
    left = iter(rows)
    first = next(left, None)
    return None if first is None else chain([first], left)


def _flat(row: Row) -> Row:
    return {name: _text(value) for name, value in row.items()}


def _text(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        return "" if value == [] else value
    if isinstance(value[0], list):
        return json.dumps([_text(item) for item in value], ensure_ascii=False)
    if isinstance(value[0], dict):
        if len(value) == 1:
            return said(value[0])
        return "\n\n".join(f"{turn['role']}: {said(turn)}" for turn in value)
    return "; ".join(map(str, value))
