"""A file opened as records, whatever its container."""

import gzip
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from apps.labeling.formats import archives, columnar, delimited, json_text
from apps.labeling.formats.records import FormatError, Record, RecordFault, Records

CONTAINERS = {
    "jsonl": "JSON Lines",
    "json": "JSON",
    "csv": "CSV or TSV",
    "parquet": "Parquet",
    "arrow": "Arrow (datasets)",
    "zip": "zipped folder (datasets)",
}
SAMPLE = 50  # records that layout and mapping are judged by
_MOST_UNZIPPED = 2_000_000_000  # bytes of a gzip file


@dataclass(frozen=True, slots=True)
class Table:
    """A file as records. `columns`: names in order of first appearance among the first records.

    `splits`: of a dataset folder, with the one that is read first; `notes`: what was assumed.
    """

    container: str
    files: tuple[tuple[Path, str], ...]  # (path, container) of each part
    sample: tuple[Record, ...]
    columns: tuple[str, ...]
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
            for number, record in _read(path, container, self.encoding, self.delimiter):
                yield before + number, record
            before += number


@contextmanager
def table_open(
    path: Path, *, container: str = "", split: str = "", encoding: str = "", delimiter: str = ""
) -> Iterator[Table]:
    """Open a file of any container for as long as the block lasts. Raises FormatError.

    What is "" is found from the content: never from the file's name, which people change.
    """
    with tempfile.TemporaryDirectory(prefix="concord-import-") as scratch:
        path, note = _ungzipped(path, Path(scratch))
        found = container or container_of(path)
        if found not in CONTAINERS:
            raise FormatError(f"There is no container {found!r}; {', '.join(CONTAINERS)} are.")
        if found == "zip":
            yield _folder(path, Path(scratch) / "unpacked", split)
        else:
            yield _single(path, found, encoding, delimiter, note)


def container_of(path: Path) -> str:
    """By content. Raises FormatError for an empty file."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise FormatError("The file is empty.")
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith((b"%PDF", b"\x89PNG", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"7z\xbc\xaf")):
        raise FormatError(
            "This is a document, an image or an archive of a kind that holds no rows here. "
            "JSON Lines, JSON, CSV, Parquet, Arrow and .zip can be read."
        )
    return _text_container(path)


def _text_container(path: Path) -> str:
    with delimited.text_open(path, delimited.encoding_of(path)) as file:
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
        closed = text.endswith("}") and text != "{"
        return "jsonl" if closed else "json"


def _single(path: Path, container: str, encoding: str, delimiter: str, note: str) -> Table:
    notes = [note] if note else []
    if container in ("jsonl", "json", "csv"):
        if not encoding:
            encoding = delimited.encoding_of(path)
            if encoding == "cp1252":
                notes.append("The text is not UTF-8; Windows-1252 was assumed.")
        else:
            _known_encoding(encoding)
    if container == "csv" and not delimiter:
        delimiter = delimited.delimiter_of(path, encoding)
    return _table(container, ((path, container),), encoding, delimiter, notes=tuple(notes))


def _folder(path: Path, scratch: Path, split: str) -> Table:
    archives.unpack(path, scratch)
    splits = archives.data_files(scratch)
    if split and split not in splits:
        raise FormatError(f"The dataset has no split {split!r}; it has {', '.join(splits)}.")
    chosen = split or ("train" if "train" in splits else next(iter(splits)))
    files = tuple((part, container_of(part)) for part in splits[chosen])
    if not files:
        raise FormatError(f"The split {chosen!r} holds no data file.")
    kinds = {kind for _, kind in files}
    encoding = delimiter = ""
    if kinds & {"csv", "json", "jsonl"}:
        encoding = delimited.encoding_of(files[0][0])
    if "csv" in kinds:
        delimiter = delimited.delimiter_of(files[0][0], encoding)
    others = [name for name in splits if name != chosen]
    note = f"Read is the split {chosen!r}; there are also {', '.join(others)}." if others else ""
    return _table(
        "zip",
        files,
        encoding,
        delimiter,
        notes=(note,) if note else (),
        split=chosen,
        splits=tuple(splits),
    )


def _table(container: str, files: tuple, encoding: str, delimiter: str, **more: object) -> Table:
    bare = Table(container, files, (), (), encoding=encoding, delimiter=delimiter, **more)
    first = [record for _, record in itertools.islice(bare.records(), SAMPLE)]
    sample = tuple(record for record in first if not isinstance(record, RecordFault))
    if not first:
        raise FormatError("The file has a header and no rows." if delimiter else "It has no rows.")
    if not sample:
        raise FormatError(f"None of its first rows can be read: {first[0].message}.")
    columns = dict.fromkeys(name for record in sample for name in record)
    if container == "csv":
        columns = dict.fromkeys(delimited.columns_of(files[0][0], encoding, delimiter))
    return Table(
        container, files, sample, tuple(columns), encoding=encoding, delimiter=delimiter, **more
    )


def _read(path: Path, container: str, encoding: str, delimiter: str) -> Records:
    match container:
        case "parquet":
            return columnar.parquet(path)
        case "arrow":
            return columnar.arrow(path)
        case "jsonl":
            return json_text.lines(path, encoding)
        case "json":
            return json_text.array(path, encoding)
        case "csv":
            return delimited.rows(path, encoding, delimiter)
    raise FormatError("An archive inside an archive is not unpacked.")


def _known_encoding(name: str) -> None:
    try:
        "".encode(name)
    except LookupError:
        raise FormatError(f"There is no text encoding called {name!r}.") from None


def _ungzipped(path: Path, scratch: Path) -> tuple[Path, str]:
    """A gzip file is unpacked first, up to a limit."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return path, ""
    target, written = scratch / "unzipped", 0
    try:
        with gzip.open(path) as source, target.open("wb") as out:
            while block := source.read(1 << 20):
                written += len(block)
                if written > _MOST_UNZIPPED:
                    raise FormatError(f"It unpacks to more than {_MOST_UNZIPPED / 1e9:g} GB.")
                out.write(block)
    except (OSError, EOFError) as error:
        raise FormatError(f"The gzip file cannot be unpacked: {error}.") from None
    return target, "The file was unpacked with gzip."
