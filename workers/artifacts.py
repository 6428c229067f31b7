"""The artifact store: files and file trees under one URL, named by content.

`ARTIFACTS_URL` is a folder by default and may be any fsspec URL (S3 …). Importable by apps: no
torch, no Django. Every path is relative to the store and may not leave it. What is read is checked
against its hash while it comes; several files of a tree travel at once. See docs/artifacts.md.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

import fsspec

# Local copies of what lies in a remote artifact store, by content hash: fetched once per machine.
#
#     cache/<sha256>/…      the files of one tree, or one file
#     cache/<sha256>.fetch  locked by whoever looks for what is missing there
#     cache/<sha256>.use    locked, shared, as long as a process that uses it lives
#
# Locks are the kernel's (flock), so those of a process that was killed are gone with it.

FETCH, USE = ".fetch", ".use"
DEFAULT_GB = 100.0
_held: dict[Path, IO[str]] = {}  # for as long as this process lives


def cache_folder() -> Path:
    """ARTIFACTS_CACHE, else `cache` beside the attempts that work on this machine."""
    if told := os.environ.get("ARTIFACTS_CACHE"):
        return Path(told).expanduser().resolve()
    work = os.environ.get("WORK_DIR") or Path(os.environ.get("VAR_DIR") or "var") / "work"
    return Path(work).expanduser().resolve() / "cache"


@contextmanager
def filling(cache: Path, sha256: str) -> Iterator[Path]:
    """The folder of one content, while no other process fetches it; afterwards it stays until this
    process is gone. Makes room first, if there is not enough (ARTIFACTS_CACHE_GB)."""
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / sha256
    with _opened(folder, FETCH) as fetching:
        fcntl.flock(fetching, fcntl.LOCK_EX)
        if folder not in _held:
            using = _opened(folder, USE)
            fcntl.flock(using, fcntl.LOCK_SH)
            _held[folder] = using
        if not folder.exists():
            make_room(cache, float(os.environ.get("ARTIFACTS_CACHE_GB") or DEFAULT_GB) * 1e9)
        folder.mkdir(exist_ok=True)
        os.utime(folder)  # the time of its last use
        yield folder


def make_room(cache: Path, most_bytes: float) -> None:
    """Delete what is not in use, what was not used for longest first, down to `most_bytes`."""
    entries = sorted(
        (path for path in cache.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    sizes = {path: _size(path) for path in entries}
    for path in entries:
        if sum(sizes.values()) <= most_bytes:
            return
        with _opened(path, FETCH) as fetching, _opened(path, USE) as using:
            if _locks(fetching) and _locks(using):
                shutil.rmtree(path)
                del sizes[path]


def _opened(folder: Path, suffix: str) -> IO[str]:
    return folder.with_name(folder.name + suffix).open("a")


def _locks(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


T = TypeVar("T")
MANIFEST = "manifest.json"
AT_ONCE = 4  # files of a tree under way
PART = 16 << 20  # bytes of one part of an upload, held in memory
PARTIAL = ".part-"  # in the name of a file that is being written
_BLOCK = 1 << 20
_DISK = (errno.ENOSPC, errno.EDQUOT)
# What a folder says that is there no more: of a network, of a disk that fails or was taken away.
_GONE = {
    *(errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EROFS, errno.EACCES, errno.EPERM),
}
_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "az"}  # stores that know no folders


class ArtifactError(ValueError):
    """A path that leaves the store, a file that is missing, or content that is not as named."""


class ArtifactMissing(ArtifactError):
    """There is no such file."""


class StoreUnreachable(ArtifactError):
    """The store does not answer, or refuses us: nothing is said about the content."""


PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0)  # seconds: a minute in all


def patiently(call: Callable[[], T]) -> T:
    """What `call` returns, also when the store is away for less than a minute meanwhile."""
    for pause in PAUSES:
        try:
            return call()
        except StoreUnreachable:
            time.sleep(pause)
    return call()


@dataclass(frozen=True, slots=True)
class Seen:
    """A file of a listing; `stamp` changes with its content, empty where the store says nothing."""

    size: int
    stamp: str


def _checked(relative: str) -> str:
    path = PurePosixPath(relative)
    if not relative or path.is_absolute() or ".." in path.parts or "\\" in relative:
        raise ArtifactError(f"artifact path '{relative}' leaves the store")
    return str(path)


class Store:
    """Reads and writes below one root. Raises `ArtifactError`, and `StoreUnreachable` where that
    root cannot be reached."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # Listings are not remembered: other machines write there too.
        self._fs, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        protocol = self._fs.protocol
        self._protocols = {protocol} if isinstance(protocol, str) else set(protocol)

    def _at(self, relative: str) -> str:
        return f"{self._root}/{_checked(relative)}"

    def open(self, relative: str, mode: str = "rb") -> IO[Any]:
        """A file object; folders are made for writing modes."""
        path = self._at(relative)
        reads = "r" in mode
        with self._clear(relative, writes=not reads):
            if not reads and not self._protocols & _OBJECTS:
                self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            if self.is_local:
                return self._fs.open(path, mode)
            return self._fs.open(path, mode, block_size=PART)

    def make_root(self) -> None:
        """Make the folder, or the bucket, where it is missing."""
        bucket = bool(self._protocols & _OBJECTS)
        place = self._root.partition("/")[0] if bucket else self._root
        with self._clear("", writes=True):
            if not self._fs.exists(place):
                self._fs.makedirs(place, exist_ok=True)

    def exists(self, relative: str) -> bool:
        with self._clear(relative):
            if not self.is_local:
                return self._fs.exists(self._at(relative))
            try:
                Path(self._at(relative)).stat()  # fsspec's answer hides why it is not there
            except FileNotFoundError:
                return False
            return True

    def size(self, relative: str) -> int:
        """Bytes of a file."""
        with self._clear(relative):
            return int(self._fs.size(self._at(relative)))

    def bytes_on_disk(self, relative: str) -> int | None:
        """Bytes of all files below a folder, a hard link once; None of a store elsewhere."""
        if not self.is_local:
            return None
        seen: dict[tuple[int, int], int] = {}
        for folder, _, names in os.walk(self._at(relative)):
            for name in names:
                try:
                    found = (Path(folder) / name).lstat()
                except FileNotFoundError:  # a trainer or a deletion was faster
                    continue
                seen[found.st_dev, found.st_ino] = found.st_size
        return sum(seen.values())

    def bytes_below(self, relative: str) -> int:
        """The same of any store, by its listing; 0 where there is no such folder."""
        found = self.bytes_on_disk(relative)
        if found is not None:
            return found
        with self._clear(relative):
            try:
                return int(self._fs.du(self._at(relative)))
            except FileNotFoundError:
                return 0

    def disk_free(self) -> int | None:
        """Bytes that the store's disk has left; None of a store elsewhere."""
        place = self.disk_place()
        return shutil.disk_usage(place).free if place is not None else None

    def disk_place(self) -> Path | None:
        """A folder on the store's disk that exists; None of a store elsewhere."""
        if not self.is_local:
            return None
        place = Path(self._root)
        while not place.exists() and place != place.parent:  # nothing was stored yet
            place = place.parent
        return place

    def write_bytes(self, relative: str, data: bytes) -> str:
        """Returns the SHA-256 of the content; all of it is there, or none."""
        with self._clear(relative, writes=True), self.written_whole(relative) as file:
            file.write(data)
        return hashlib.sha256(data).hexdigest()

    def read_bytes(self, relative: str, *, sha256: str | None = None) -> bytes:
        """Raises `ArtifactError` when missing, or when the content is not that of `sha256`."""
        with self._clear(relative), self.open(relative) as file:
            data = file.read()
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ArtifactError(f"artifact '{relative}' is not the content it was named by")
        return data

    def lines(self, relative: str) -> Iterator[dict[str, Any]]:
        """Objects of a JSON Lines file."""
        with self.open(relative) as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)

    def names(self, relative: str) -> list[str]:
        """Names of the files right below a folder, sorted; none where there is no such folder."""
        path = self._at(relative)
        with self._clear(relative):
            try:
                found = self._fs.ls(path, detail=True)
            except FileNotFoundError:
                return []
        return sorted(
            PurePosixPath(entry["name"]).name for entry in found if entry["type"] == "file"
        )

    def files(self, relative: str = "") -> dict[str, Seen]:
        """Every file below a folder, or of the whole store, by its path in the store. Files that
        are being written (`written_whole`) are left out."""
        root = self._at(relative) if relative else self._root
        with self._clear(relative or "."):
            try:
                found = self._fs.find(root, detail=True)
            except FileNotFoundError:
                return {}
        at = len(self._root.rstrip("/")) + 1
        return {
            path[at:]: Seen(int(entry["size"]), _stamp(entry))
            for path, entry in found.items()
            if entry["type"] == "file" and PARTIAL not in path.rpartition("/")[2]
        }

    @contextmanager
    def written_whole(self, relative: str) -> Iterator[IO[bytes]]:
        """A file that has its name only once all of it is there; after an exception there is
        nothing. What it replaces stays until then."""
        if not self.is_local:
            with self._clear(relative, writes=True):
                file = self.open(relative, "wb")
                try:
                    yield file
                except BaseException:
                    _upload_discard(file)
                    raise
                file.close()
            return
        path = Path(self._at(relative))
        part = path.with_name(f"{path.name}{PARTIAL}{os.getpid()}-{os.urandom(4).hex()}")
        with self._clear(relative, writes=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = part.open("wb")
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise

    def delete_partial(self, *, older_than: float) -> None:
        """Files of writers that were killed, by the seconds since they were written to."""
        if not self.is_local or not Path(self._root).exists():
            return
        for path in Path(self._root).rglob(f"*{PARTIAL}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - older_than:
                    path.unlink()

    def delete_file(self, relative: str) -> None:
        """It may be gone already."""
        with self._clear(relative, writes=True), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(relative))

    def delete_tree(self, relative: str) -> None:
        with self._clear(relative, writes=True):
            if self.exists(relative):
                self._fs.rm(self._at(relative), recursive=True)

    def put_file(self, local: Path, relative: str) -> str:
        """Copy a local file into the store; returns the SHA-256 of what was copied."""
        with (
            local.open("rb") as source,
            self._clear(relative, writes=True),
            self.open(relative, "wb") as target,
        ):
            return _copy(source, target)

    def put_tree(self, local: Path, relative: str) -> tuple[str, int]:
        """Copy a local folder into the store with a manifest; returns (sha256, bytes).

        The manifest is written last and has the hashes of what was copied, so a tree without one
        is an unfinished copy. When the store is that same folder nothing is copied.
        """
        if self.is_local and Path(self._at(relative)).resolve() == local.resolve():
            manifest, size = tree_manifest(local)
        else:
            names, size = files_below(local)
            copied = _at_once(
                {name: (self.put_file, local / name, f"{relative}/{name}") for name in names}
            )
            manifest = {name: copied[name] for name in names}
        text = json.dumps(manifest, sort_keys=True, indent=1).encode()
        self.write_bytes(f"{relative}/{MANIFEST}", text)
        return hashlib.sha256(text).hexdigest(), size

    def get_tree(self, relative: str, *, sha256: str, cache: Path, with_state: bool = True) -> Path:
        """A local folder with the tree's files, verified against its manifest and `sha256`.

        A store on this machine's disk is read in place; others are copied to `cache/<sha256>`,
        each file once: what lies there already and is whole is not fetched again. Without
        `with_state` files of a trainer's state may be missing: a project's retention removes them
        from models that are kept.
        """
        try:
            text = self.read_bytes(f"{relative}/{MANIFEST}", sha256=sha256)
        except ArtifactMissing as error:
            told = f"artifact '{relative}' is missing, or was never stored whole (no {MANIFEST})"
            raise ArtifactError(told) from error
        manifest: dict[str, str] = json.loads(text)
        if self.is_local:
            folder = Path(self._at(relative))
            for name, digest in manifest.items():
                if not with_state and _is_state(name) and not (folder / name).exists():
                    continue
                if file_sha256(folder / _checked(name)) != digest:
                    raise _damaged(f"{relative}/{name}")
            return folder
        with filling(cache, sha256) as folder:
            _at_once(
                {
                    name: (
                        self._fetch,
                        f"{relative}/{name}",
                        folder / _checked(name),
                        digest,
                        not with_state and _is_state(name),
                    )
                    for name, digest in manifest.items()
                }
            )
        return folder

    def get_file(self, relative: str, *, sha256: str, cache: Path) -> Path:
        """A local copy of one file, verified against the hash of its bytes.

        A store on this machine's disk is read in place; others are copied to `cache/<sha256>`.
        """
        if self.is_local:
            path = Path(self._at(relative))
            if not self.exists(relative):
                raise ArtifactMissing(f"artifact '{relative}' is missing")
            if file_sha256(path) != sha256:
                raise _damaged(relative)
            return path
        with filling(cache, sha256) as folder:
            path = folder / PurePosixPath(_checked(relative)).name
            self._fetch(relative, path, sha256)
        return path

    def _fetch(self, relative: str, target: Path, sha256: str, may_miss: bool = False) -> None:
        """`target` holds the file, checked while it came. A copy that is whole stays."""
        if target.exists() and file_sha256(target) == sha256:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        try:
            with self._clear(relative), self.open(relative) as source, part.open("wb") as file:
                digest = _copy(source, file)
        except ArtifactMissing:
            if may_miss:
                return
            raise
        if digest != sha256:
            part.unlink()
            raise _damaged(relative)
        part.replace(target)

    def local_path(self, relative: str) -> Path | None:
        """The path on this machine's disk, or None for a remote store."""
        return Path(self._at(relative)) if self.is_local else None

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine's disk."""
        return "file" in self._protocols

    @contextmanager
    def _clear(self, relative: str, *, writes: bool = False) -> Iterator[None]:
        """Whatever the store's own library raises becomes an error that names the artifact."""
        try:
            yield
        except ArtifactError:
            raise
        except FileNotFoundError as error:
            if not writes:
                raise ArtifactMissing(f"artifact '{relative}' is missing") from error
            raise self._unreachable(relative, error) from error
        except Exception as error:
            full = isinstance(error, OSError) and error.errno in _DISK
            reached = self._is_there(error) if self.is_local else not _of_a_store(error)
            if full or reached:
                raise
            raise self._unreachable(relative, error) from error

    def _is_there(self, error: Exception) -> bool:
        """Whether a store on this machine's disk is reached, going by what it raised. Where its
        root is no folder, something that is mounted there is gone."""
        if isinstance(error, NotADirectoryError | FileExistsError):
            return Path(self._root).is_dir() or not os.path.lexists(self._root)
        return not (isinstance(error, OSError) and error.errno in _GONE)

    def _unreachable(self, relative: str, error: Exception) -> StoreUnreachable:
        what = " ".join(str(error).split())[:300] or type(error).__name__
        place = f" at '{relative}'" if relative else ""
        return StoreUnreachable(f"the artifact store failed{place}: {what}")


def _stamp(entry: Mapping[str, Any]) -> str:
    """What changes with a file's content: the time of its last change, or what the store says."""
    for name in ("mtime", "ETag", "etag", "LastModified", "last_modified", "created"):
        if entry.get(name):
            return f"{entry[name]!r}" if isinstance(entry[name], float) else str(entry[name])
    return ""


def _upload_discard(file: IO[bytes]) -> None:
    """Close it without its end: what was sent of it is no object."""
    with suppress(Exception):  # there is another error to tell
        file.discard()  # type: ignore[attr-defined] # of fsspec's buffered files
    with suppress(Exception):
        file.buffer = None  # type: ignore[attr-defined]
        file.closed = True  # type: ignore[misc]


def _of_a_store(error: Exception) -> bool:
    """s3fs raises OSError where it knows the answer, and what it was told by its libraries else."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | TimeoutError) or package in (
        "botocore",
        "aiobotocore",
        "aiohttp",
    )


def _is_state(name: str) -> bool:
    return name.startswith(f"{RESUME}/")


def _damaged(relative: str) -> ArtifactError:
    return ArtifactError(f"artifact '{relative}' is damaged: wrong content hash")


def _at_once(calls: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """{name: what its call returns}, some at a time; the first error ends the rest."""
    with ThreadPoolExecutor(AT_ONCE, "artifacts") as pool:
        pending = {name: pool.submit(*call) for name, call in calls.items()}
        try:
            return {name: one.result() for name, one in pending.items()}
        finally:
            for one in pending.values():
                one.cancel()


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """The SHA-256 of what went by."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a local file; `ArtifactError` when it is missing."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError as error:
        raise ArtifactMissing(f"file '{path.name}' is missing") from error
    return digest.hexdigest()


def tree_manifest(folder: Path) -> tuple[dict[str, str], int]:
    """({relative name: sha256}, total bytes) of a local folder, without its own manifest."""
    names, size = files_below(folder)
    return {name: file_sha256(folder / name) for name in names}, size


def files_below(folder: Path) -> tuple[list[str], int]:
    """(relative names, total bytes) of a local folder, without its own manifest."""
    names = sorted(
        str(path.relative_to(folder).as_posix())
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    )
    return names, sum((folder / name).stat().st_size for name in names)


# What lies in a checkpoint, and which of it leaves with the model.
#
#     config.json, model.safetensors, tokenizer …   a model folder that any program loads
#     adapter/                                      of a LoRA: the adapters, as peft saves them
#     resume/                                       what only the trainer reads, to go on from there

RESUME, ADAPTER = "resume", "adapter"
CARD = "README.md"
OWN_CARD = "README-of-the-base.md"  # what a registered model brought, beside the card of ours
MERGED = "merged"  # the whole model; of a LoRA with its adapters added into the weights
PARTS = (MERGED, ADAPTER)
_TOKENIZER = ("token", "special_", "added_", "chat_template", "vocab", "merges", "spiece")
_PAPERS = ("LICENSE", "NOTICE")
# What trainers left beside the model before there was `resume/`.
_BEFORE = (
    "best/",
    "critic.",
    "grpo_state.",
    "guards.",
    "optimizer.",
    "randomness_",
    "reference_logprobs.",
    "rollouts.",
    "scheduler.",
    "trainer_state.",
    "training.",
    "training_args.",
    "training_state.",
    "value_head.",
)


def state_of(folder: Path) -> Path:
    """Where the trainer's state lies in a checkpoint."""
    inner = folder / RESUME
    return inner if inner.is_dir() else folder


def state_in(folder: Path) -> Path:
    """The same of a checkpoint that is being written."""
    inner = folder / RESUME
    inner.mkdir(parents=True, exist_ok=True)
    return inner


def has_adapter(names: Iterable[str]) -> bool:
    return any(name.startswith(f"{ADAPTER}/") for name in names)


def model_files(names: Iterable[str], part: str = MERGED) -> dict[str, str]:
    """{name in a download: name in the checkpoint}, sorted; of the adapters with the tokenizer."""
    adapter = f"{ADAPTER}/"
    if part == ADAPTER:
        kept = {n.removeprefix(adapter): n for n in names if n.startswith(adapter)}
        kept |= {n: n for n in names if n.startswith((*_TOKENIZER, *_PAPERS)) and "/" not in n}
    else:
        kept = {
            n: n for n in without_state(names) if f"/{adapter}" not in f"/{n}"
        }  # of members too
    return dict(sorted((OWN_CARD if n == CARD else n, source) for n, source in kept.items()))


def without_state(names: Iterable[str]) -> list[str]:
    """What makes up the model of a checkpoint, its adapters included."""
    return [name for name in names if not name.startswith((f"{RESUME}/", *_BEFORE))]


def papers(names: Iterable[str]) -> list[str]:
    """Of the model that another began as: what its licence asks to go along."""
    return [name for name in names if name.startswith(_PAPERS)]
