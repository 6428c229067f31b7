"""Zipped folders: `datasets.save_to_disk`, or Parquet, JSON Lines and CSV files in folders.

What an archive may do is limited before anything is unpacked: no path leaves the target, no links,
at most so many files and bytes, and no member that swells more than two hundredfold.
"""

import json
import lzma
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from apps.labeling.formats.records import (
    MOST_SWELLING,
    FileLimits,
    FormatError,
    of_the_machine,
)

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
            _check(members, limits.decoded)
            left = limits.decoded
            for member in members:
                if PurePosixPath(member.filename).suffix.lower() not in WANTED:
                    continue
                left -= _write(archive, member, target, left)
    except _DAMAGED as error:
        if of_the_machine(error):
            raise
        raise FormatError(f"The archive cannot be unpacked: {error}.") from None


def _check(members: list[zipfile.ZipInfo], most: int) -> None:
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


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
