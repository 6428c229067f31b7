"""Files that attack whoever reads them: small ones that grow, damaged ones, ones that cost hours.

Each comes from a seed or a formula, so that no binary lies in the repository.
"""

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

from apps.common.errors import DomainError
from apps.labeling.formats import layouts

PAIR = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}


def arrow_stream(*, offset: int = 12345) -> bytes:
    """An Arrow stream of one row; its last text ends at `offset`, where there are 12,345 bytes."""
    sink = io.BytesIO()
    batch = pa.record_batch([pa.array(["x" * 12345])] * 3, names=list(PAIR))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    before, offsets, after = sink.getvalue().rpartition(struct.pack("<ii", 0, 12345))
    assert offsets
    return before + struct.pack("<ii", 0, offset) + after


def arrow_dictionary_bomb(*, rows: int = 1000, characters: int = 400_000) -> bytes:
    """Every row is the same long text, stored once and compressed."""
    indices = pa.array([0] * rows, pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * characters]))
    batch = pa.record_batch([column] * 3, names=list(PAIR))
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def arrow_of_nothing(*, rows: int = 1 << 30) -> bytes:
    """A column of nulls needs no byte for any number of rows."""
    sink = io.BytesIO()
    column = pa.Array.from_buffers(pa.null(), rows, [None])
    batch = pa.record_batch([column] * 3, names=list(PAIR))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def parquet_dictionary_bomb(*, rows: int = 1000, characters: int = 1_000_000) -> bytes:
    """About a kilobyte that decodes to rows × characters; written in groups, to stay small here."""
    sink, group = io.BytesIO(), 10
    column = pa.DictionaryArray.from_arrays(
        pa.array([0] * group, pa.int8()), pa.array(["x" * characters])
    )
    table = pa.table(
        {"prompt": column, "response_a": ["So."] * group, "response_b": ["Or."] * group}
    )
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", store_schema=False, write_statistics=False
    ) as writer:
        for _ in range(rows // group):
            writer.write_table(table)
    return sink.getvalue()


def parquet_pairs(*, rows: int = 40) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([PAIR | {"n": n} for n in range(rows)]), sink)
    return sink.getvalue()


def damaged_parquets(count: int = 150, seed: int = 7) -> Iterator[bytes]:
    """A Parquet file with some bytes changed, cut out or repeated, the same each time."""
    draw, whole = random.Random(seed), parquet_pairs()
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 8, 64))):
            data[draw.randrange(4, len(data))] = draw.randrange(256)
        if draw.random() < 0.2:
            begin = draw.randrange(4, len(data))
            del data[begin : begin + draw.randrange(1, 200)]
        yield bytes(data)


def json_of_empty_objects(size: int = 20_000_000) -> bytes:
    return b"[" + b"{}," * (size // 3) + b"{}]"


def json_of_many_keys(keys: int = 900_000) -> bytes:
    return json.dumps({f"k{n}": 1 for n in range(keys)}).encode()


def csv_of_columns(columns: int) -> bytes:
    names = ",".join(f"c{n}" for n in range(columns))
    return f"{names}\n{','.join('1' * columns)}\n".encode()


def gzip_bomb(size: int = 2_000_000_000) -> bytes:
    """`size` bytes of one letter; packed piece by piece, since members may follow each other."""
    piece = 50_000_000
    return gzip.compress(b"a" * piece, mtime=0) * (size // piece)


def every_hostile_file() -> dict[str, bytes]:
    """The files of the security test, by name."""
    return {
        "Arrow, offset beyond its buffer": arrow_stream(offset=0x7FFFFF00),
        "Arrow, negative offset": arrow_stream(offset=-5),
        "Arrow, offset past the text": arrow_stream(offset=12_400),
        "Arrow, one long text in a dictionary": arrow_dictionary_bomb(),
        "Arrow, a billion nulls": arrow_of_nothing(),
        "Parquet, one long text in a dictionary": parquet_dictionary_bomb(),
        "Parquet, texts of 20 MB": parquet_dictionary_bomb(characters=20_000_000, rows=200),
        "JSON, 20 MB of empty objects": json_of_empty_objects(),
        "JSON, 900,000 keys": json_of_many_keys(),
        "JSON, nested 100,000 deep": b"[" * 100_000,
        "JSON, a number of 5,000 digits": b'[{"prompt": ' + b"9" * 5000 + b"}]",
        "gzip of 2 GB": gzip_bomb(),
        "CSV of 10,000 columns": csv_of_columns(10_000),
        "CSV of 20,000 columns": csv_of_columns(20_000),
    }


def outcomes(*, begin: int, scratch: str) -> Iterator[list[Any]]:
    """For a child process: how reading each damaged Parquet file ends, [number, code]."""
    path = Path(scratch) / "upload"
    for number, data in enumerate(damaged_parquets()):
        if number < begin:
            continue
        path.write_bytes(data)
        try:
            read = layouts.rows(path=str(path), chosen={}, columns=500, decoded=10**8, scratch="-")
            code = f"{sum(1 for _ in read) - 1} rows"
        except DomainError as error:
            code = error.code
        yield [number, code]


SHEET = '<row><c t="inlineStr"><is><t>word word word word word word word</t></is></c></row>'
# Each entity is ten of the one before.
ENTITIES = "".join(
    ["<!DOCTYPE styleSheet [<!ENTITY e0 'lol'>"]
    + [f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 10)]
    + ["]><styleSheet>&e9;</styleSheet>"]
)


def workbook(*, sheet: str = SHEET * 3, styles: str = "") -> bytes:
    """An Excel file with this XML as the rows of its first sheet, or as its styles."""
    book, plain = openpyxl.Workbook(), io.BytesIO()
    book.active.append(list(PAIR))
    book.save(plain)
    made = io.BytesIO()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name).decode()
            if name == "xl/worksheets/sheet1.xml":
                text = text.replace("</sheetData>", f"{sheet}</sheetData>")
            elif name == "xl/styles.xml" and styles:
                text = styles
            new.writestr(name, text)
    return made.getvalue()
