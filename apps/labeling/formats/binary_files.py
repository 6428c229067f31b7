"""Archives, Parquet and Arrow files as records."""

import json
import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apps.labeling.formats.images import data_url
from apps.labeling.formats.records import (
    MOST_SWELLING,
    FileLimits,
    FormatError,
    Records,
    columns_check,
    of_the_machine,
)

# Zipped folders: `datasets.save_to_disk`, or Parquet, JSON Lines and CSV files in folders.
#
# What an archive may do is limited before anything is unpacked: no path leaves the target, no
# links, at most so many files and bytes, and no member that swells more than two hundredfold.

MOST_FILES = 2000
WANTED = (".arrow", ".parquet", ".jsonl", ".json", ".ndjson", ".csv", ".tsv")
_NO_DATA = ("dataset_info.json", "state.json", "dataset_dict.json", "dataset_infos.json")

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
)


def unpack(path: Path, target: Path, limits: FileLimits) -> None:
    """Unpack the members that may hold data or describe it. Raises FormatError."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            members_check(members, limits.decoded)
            left = limits.decoded
            for member in members:
                if PurePosixPath(member.filename).suffix.lower() not in WANTED:
                    continue
                left -= _write(archive, member, target, left)
    except _DAMAGED as error:
        if of_the_machine(error):
            raise
        raise FormatError(f"The archive cannot be unpacked: {error}.") from None


def members_check(members: list[zipfile.ZipInfo], most: int) -> None:
    """Raises FormatError for an archive that would write outside itself, or swells."""
    if len(members) > MOST_FILES:
        raise FormatError(f"The archive holds {len(members):,} files; at most {MOST_FILES:,}.")
    if sum(m.file_size for m in members) > most:
        raise FormatError(f"The archive unpacks to more than {most / 1e9:g} GB.")
    for member in members:
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in member.filename or ":" in str(name):
            raise FormatError(f"The archive holds a path that leaves it: {member.filename!r}.")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise FormatError(f"The archive holds a link: {member.filename!r}.")
        if member.flag_bits & 1:
            raise FormatError("The archive is encrypted.")
        swollen = member.file_size > MOST_SWELLING * max(1, member.compress_size)
        if member.file_size > 1_000_000 and swollen:
            raise FormatError(
                f"{member.filename!r} in the archive unpacks to {MOST_SWELLING} times its size or "
                "more, as no text does."
            )


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Bytes written; counted while writing, since a header may lie about its size."""
    destination = target.joinpath(*PurePosixPath(member.filename).parts)
    destination.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(member) as source, destination.open("wb") as file:
        while block := source.read(1 << 20):
            written += len(block)
            if written > min(left, member.file_size):
                raise FormatError("The archive unpacks to more than its directory says.")
            file.write(block)
    return written


def data_files(folder: Path) -> dict[str, list[Path]]:
    """Files of each split, in order; one split "" where the folder knows none.

    `dataset_dict.json` names splits that are folders, each with a `state.json` that lists its Arrow
    files; otherwise the folder or the first part of a file's name (`train-00000-of-00002.parquet`)
    tells the split. Raises FormatError where there is no data.
    """
    for state in sorted(folder.rglob("dataset_dict.json")):
        names = _json(state).get("splits")
        if isinstance(names, list):
            return {str(name): _saved(_inside(state.parent, str(name))) for name in names}
    for state in sorted(folder.rglob("state.json")):
        return {"": _saved(state.parent)}
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.relative_to(folder).parts)
        if path.is_file() and path.suffix.lower() in WANTED and not hidden:
            if path.name in _NO_DATA:
                continue
            found.setdefault(_split_of(path, folder), []).append(path)
    if not found:
        raise FormatError("The archive holds no Arrow, Parquet, JSON or CSV file.")
    return found


def _saved(folder: Path) -> list[Path]:
    """The Arrow files that the `state.json` of a saved dataset lists."""
    entries = _json(folder / "state.json").get("_data_files")
    if not isinstance(entries, list):
        raise FormatError(f"state.json of {folder.name!r} lists no data files.")
    names = [entry.get("filename", "") if isinstance(entry, dict) else "" for entry in entries]
    files = [_inside(folder, str(name)) for name in names]
    for file in files:
        if not file.is_file():
            raise FormatError(f"state.json lists {file.name!r}, which the archive lacks.")
    return files


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name.replace("\x00", "\ufffd")).resolve()
    if not path.is_relative_to(folder.resolve()) or not name:
        raise FormatError(f"The dataset names a file outside its folder: {name!r}.")
    return path


def _split_of(path: Path, root: Path) -> str:
    stem = path.stem.split("-")[0].split(".")[0].casefold()
    words = (*(part.casefold() for part in path.relative_to(root).parts[:-1]), stem)
    known = {"train", "test", "validation", "valid", "dev", "eval", "train_prefs", "test_prefs"}
    return next((word for word in reversed(words) if word in known), "")


def _json(path: Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path.name} cannot be read: {error}.") from None
    return value if isinstance(value, dict) else {}


def archive_kind(path: Path) -> str:
    """ "xlsx" for a workbook, else "zip". Raises FormatError for a document of another kind."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _DAMAGED as error:
        if of_the_machine(error):
            raise
        return "zip"  # which says what is wrong with it
    if "xl/workbook.xml" in names:
        return "xlsx"
    if {"word/document.xml", "ppt/presentation.xml", "content.xml", "xl/workbook.bin"} & {*names}:
        raise FormatError("This is a document of an office program. Save it as .xlsx or as CSV.")
    return "zip"


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


# Parquet files and Arrow streams, read in batches without loading the file.
#
# Their bytes say where each value lies, so a batch is checked in full before a value is taken from
# it; and one value may be said to fill a million rows, so values are taken a few at a time.

_PARQUET_ROWS = 64  # of a batch; a dictionary is written out for as many
_SLICE_BYTES = 4_000_000
_BUFFER = 1 << 20


def parquet(path: Path, limits: FileLimits) -> Records:
    """Raises FormatError for a damaged file."""
    with reading("Parquet"), pa.OSFile(str(path)) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
        columns_check(file.schema_arrow.names, limits)
        batches = file.iter_batches(batch_size=_PARQUET_ROWS, use_threads=False)
        yield from _numbered(batches, limits)


def arrow(path: Path, limits: FileLimits) -> Records:
    """An Arrow IPC stream (as `datasets` writes) or file. Raises FormatError when damaged."""
    # Not mapped into memory: what is wrong with a mapped file ends the process.
    with reading("Arrow"), pa.OSFile(str(path)) as source:
        yield from _numbered(_batches(source, limits), limits)


@contextmanager
def reading(kind: str) -> Iterator[None]:
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
                yield (
                    number,
                    {
                        name: _plain(_parsed(value, batch.schema.field(name).type))
                        for name, value in record.items()
                    },
                )


def _slice_rows(batch: pa.RecordBatch) -> int:
    """How many rows become Python's values at a time. Where rows may share their bytes, the size
    of the batch tells nothing of theirs."""
    shares = ("dictionary", "view", "run_end")
    if any(word in str(column.type) for column in batch.columns for word in shares):
        return 8
    row = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(1000, _SLICE_BYTES // row))


def _parsed(value: Any, type_: pa.DataType) -> Any:
    """A value of Arrow's type of JSON, or a list of them, as what it says: `datasets` writes
    messages so whose fields differ. What cannot be parsed stays a text."""
    if isinstance(type_, pa.JsonType) and isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    if isinstance(value, list) and pa.types.is_list(type_):
        return [_parsed(entry, type_.value_type) for entry in value]
    return value


def _plain(value: Any) -> Any:
    """JSON's types: dates as ISO text, images as data URLs, other bytes as their length, structs
    without empty members."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return data_url(value) or f"<{len(value)} bytes>"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _first_line(error: Exception) -> str:
    """What the library says, without a word that is missing where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200].rstrip(".")
