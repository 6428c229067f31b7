"""A file opened as records, whatever its container."""

import gzip
import itertools
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from apps.labeling.formats import binary_files, text_files
from apps.labeling.formats.records import (
    MOST_SWELLING,
    FileLimits,
    FormatError,
    Record,
    RecordFault,
    Records,
    columns_check,
    of_the_machine,
)

CONTAINERS = {
    "jsonl": "JSON Lines",
    "json": "JSON",
    "csv": "CSV or TSV",
    "parquet": "Parquet",
    "arrow": "Arrow (datasets)",
    "xlsx": "Excel (.xlsx)",
    "zip": "zipped folder (datasets)",
}
SAMPLE = 50  # records that layout and mapping are judged by
_SWELLS_FROM = 1_000_000  # unpacked bytes


@dataclass(frozen=True, slots=True)
class Table:
    """A file as records. `columns`: names in order of first appearance among the first records.

    `splits`: of a dataset folder, or the sheets of a workbook; `split`: the one that is read;
    `notes`: what was assumed.
    """

    container: str
    files: tuple[tuple[Path, str], ...]  # (path, container) of each part
    sample: tuple[Record, ...]
    columns: tuple[str, ...]
    limits: FileLimits
    split: str = ""
    splits: tuple[str, ...] = ()
    encoding: str = ""
    delimiter: str = ""
    notes: tuple[str, ...] = field(default=())

    def records(self) -> Records:
        """All records from the first, numbered over all parts. Raises FormatError."""
        before = 0
        for path, container in self.files:
            number = 0
            for number, record in self._read(path, container):
                yield before + number, self._narrow(record)
            before += number

    def _read(self, path: Path, container: str) -> Records:
        match container:
            case "parquet":
                return _columnar().parquet(path, self.limits)
            case "arrow":
                return _columnar().arrow(path, self.limits)
            case "jsonl":
                return text_files.lines(path, self.encoding)
            case "json":
                return text_files.array(path, self.encoding)
            case "csv":
                return text_files.rows(path, self.encoding, self.delimiter, self.limits)
            case "xlsx":
                return _workbooks().rows(path, self.split, self.limits)
        raise FormatError("An archive inside an archive is not unpacked.")

    def _narrow(self, record: Record | RecordFault) -> Record | RecordFault:
        if isinstance(record, RecordFault) or len(record) <= self.limits.columns:
            return record
        message = f"has {len(record):,} fields; at most {self.limits.columns:,} are read"
        return RecordFault("row", message)


@contextmanager
def table_open(
    path: Path,
    *,
    container: str = "",
    split: str = "",
    encoding: str = "",
    delimiter: str = "",
    limits: FileLimits | None = None,
) -> Iterator[Table]:
    """Open a file of any container for as long as the block lasts. Raises FormatError.

    What is "" is found from the content: never from the file's name, which people change.
    """
    limits = limits or FileLimits()
    with tempfile.TemporaryDirectory(prefix="concord-import-") as scratch:
        path, note = _ungzipped(path, Path(scratch), limits)
        found = container or container_of(path)
        if found not in CONTAINERS:
            raise FormatError(f"There is no container {found[:40]!r}; {', '.join(CONTAINERS)} are.")
        try:
            if found == "zip":
                yield _folder(path, Path(scratch) / "unpacked", split, limits)
            elif found == "xlsx":
                yield _workbook(path, split, limits)
            else:
                yield _single(path, found, encoding, delimiter, note, limits)
        except UnicodeError as error:
            raise FormatError(f"The text does not fit its encoding: {error}.") from None


def container_of(path: Path) -> str:
    """By content. Raises FormatError for an empty file."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise FormatError("The file is empty.")
    if head.startswith(b"PK\x03\x04"):
        return binary_files.archive_kind(path)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith((b"%PDF", b"\x89PNG", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"7z\xbc\xaf")):
        raise FormatError(
            "This is a document, an image or an archive of a kind that holds no rows here. "
            "JSON Lines, JSON, CSV, .xlsx, Parquet, Arrow and .zip can be read."
        )
    return _text_container(path)


def _text_container(path: Path) -> str:
    with text_files.text_open(path, text_files.encoding_of(path)) as file:
        first = ""
        while not first.strip():
            line = file.readline(1 << 22)
            if not line:
                raise FormatError("The file is empty.")
            first = line
        text = first.strip().lstrip("\ufeff")
        if text[:1] == "[":
            return "json"
        if text[:1] != "{":
            return "csv"
        # An object on its own line and another after it are lines; else it is one document.
        while first and not first.endswith("\n"):  # a line of megabytes: the log of an agent
            first = file.readline(1 << 22)
            text = (text[:1] + first.strip()) if first.strip() else text
        closed = text.endswith("}") and text != "{"
        return "jsonl" if closed else "json"


def _single(
    path: Path, container: str, encoding: str, delimiter: str, note: str, limits: FileLimits
) -> Table:
    notes = [note] if note else []
    if container in ("jsonl", "json", "csv"):
        if not encoding:
            encoding = text_files.encoding_of(path)
            if encoding == "cp1252":
                notes.append("The text is not UTF-8; Windows-1252 was assumed.")
        else:
            text_files.encoding_check(encoding)
    if container == "csv" and not delimiter:
        delimiter = text_files.delimiter_of(path, encoding)
    elif container == "csv":
        text_files.delimiter_check(delimiter)
    files = ((path, container),)
    return _table(container, files, encoding, delimiter, limits, notes=tuple(notes))


def _folder(path: Path, scratch: Path, split: str, limits: FileLimits) -> Table:
    binary_files.unpack(path, scratch, limits)
    splits = binary_files.data_files(scratch)
    chosen, notes = _split(split, list(splits), "split")
    files = tuple((part, container_of(part)) for part in splits[chosen])
    if not files:
        raise FormatError(f"The split {chosen!r} holds no data file.")
    kinds = {kind for _, kind in files}
    encoding = delimiter = ""
    if kinds & {"csv", "json", "jsonl"}:
        encoding = text_files.encoding_of(files[0][0])
    if "csv" in kinds:
        delimiter = text_files.delimiter_of(files[0][0], encoding)
    return _table(
        "zip",
        files,
        encoding,
        delimiter,
        limits,
        notes=notes,
        split=chosen,
        splits=tuple(splits),
    )


def _workbook(path: Path, sheet: str, limits: FileLimits) -> Table:
    sheets = _workbooks().sheets(path, limits)
    chosen, notes = _split(sheet, sheets, "sheet")
    files = ((path, "xlsx"),)
    return _table("xlsx", files, "", "", limits, notes=notes, split=chosen, splits=tuple(sheets))


def _split(wanted: str, there: list[str], noun: str) -> tuple[str, tuple[str, ...]]:
    """The one to read, and what is said of the others."""
    if wanted and wanted not in there:
        raise FormatError(f"There is no {noun} {wanted!r}; there are {', '.join(there)}.")
    chosen = wanted or ("train" if "train" in there else there[0])
    others = [name for name in there if name != chosen]
    if not others:
        return chosen, ()
    return chosen, (f"Read is the {noun} {chosen!r}; there are also {', '.join(others)}.",)


def _table(
    container: str,
    files: tuple[tuple[Path, str], ...],
    encoding: str,
    delimiter: str,
    limits: FileLimits,
    **more: Any,
) -> Table:
    bare = Table(container, files, (), (), limits, encoding=encoding, delimiter=delimiter, **more)
    first = [record for _, record in itertools.islice(bare.records(), SAMPLE)]
    sample = tuple(record for record in first if not isinstance(record, RecordFault))
    if not first:
        raise FormatError("The file has a header and no rows." if delimiter else "It has no rows.")
    if not sample:
        raise FormatError(f"None of its first rows can be read: {first[0].message}.")
    columns = tuple(dict.fromkeys(name for record in sample for name in record))
    named = None
    if container == "csv":
        named = text_files.header(files[0][0], encoding, delimiter, limits)
    elif container == "xlsx":
        named = _workbooks().header(files[0][0], bare.split, limits)
    if named is not None:
        columns = tuple(n for n in named.names if n in columns or n not in named.made_up)
    columns_check(columns, limits)
    return replace(bare, sample=sample, columns=columns)


def _columnar() -> ModuleType:
    """Loaded where it is needed: it takes longer than reading the first rows of a text."""
    from apps.labeling.formats import binary_files

    return binary_files


def _workbooks() -> ModuleType:
    """Loaded where it is needed, likewise."""
    from apps.labeling.formats import workbooks

    return workbooks


def _ungzipped(path: Path, scratch: Path, limits: FileLimits) -> tuple[Path, str]:
    """A gzip file is unpacked first, up to a limit."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return path, ""
    target, written = scratch / "unzipped", 0
    try:
        with path.open("rb") as packed, gzip.open(packed) as source, target.open("wb") as out:
            while block := source.read(1 << 20):
                written += len(block)
                if written > limits.decoded:
                    raise FormatError(f"It unpacks to more than {limits.decoded / 1e9:g} GB.")
                if written > max(_SWELLS_FROM, MOST_SWELLING * packed.tell()):
                    raise FormatError(
                        f"It unpacks to {MOST_SWELLING} times its size or more, as no text does."
                    )
                out.write(block)
    except (OSError, EOFError, zlib.error) as error:
        if of_the_machine(error):
            raise
        raise FormatError(f"The gzip file cannot be unpacked: {error}.") from None
    return target, "The file was unpacked with gzip."
