"""Where backups lie: a folder, or any fsspec URL such as `s3://bucket/concord-backups`.

    backups/<name>/database.dump     pg_dump's custom format
    backups/<name>/manifest.json     last of all: a folder without it is no backup
    artifacts/<aa>/<name of content> files of the artifact store, each content once for all backups
    erasures/…                       who must stay erased, of all backups together; never pruned

With a key every file is encrypted and called `….enc`, and contents are called by an HMAC of their
hash. Names of backups are times in UTC, so that they sort.
"""

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit, urlunsplit

from apps.common.errors import Conflict, DomainError, Missing, Unavailable
from apps.monitoring.services.backups.encryption import (
    EncryptionError,
    Key,
    decrypted,
    encrypted,
    encrypted_size,
)
from workers.artifacts import ArtifactError, ArtifactMissing, Seen, Store

DUMP, MANIFEST = "database.dump", "manifest.json"
ERASURES = "erasures"
FORMAT = 1
_BLOCK = 1 << 20
_ENCRYPTED = ".enc"
_NAME = "%Y%m%dT%H%M%SZ"
_DISK = (errno.ENOSPC, errno.EDQUOT)


class BackupDamaged(Conflict):
    """Something of a backup is missing, changed, or under another key; the text names it."""

    code = "backup_damaged"


class ContentChanged(Exception):
    """What was written is not the content that it was to be; nothing of it is there."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it was before it was encrypted."""

    sha256: str
    size: int


class Target:
    """Reads and writes plain bytes; what lies there may be encrypted. Raises `DomainError`."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self.store, self.key = Store(url), key

    @property
    def words(self) -> str:
        """The address as it may be shown."""
        return address_words(self.store.url)

    def names(self) -> list[str]:
        """Complete backups, oldest first."""
        return sorted(
            path.split("/")[1]
            for path in self._files("backups")
            if path.removesuffix(_ENCRYPTED).endswith(f"/{MANIFEST}")
        )

    def unfinished(self) -> list[str]:
        """Folders of backups that have no manifest."""
        return sorted({path.split("/")[1] for path in self._files("backups")} - {*self.names()})

    def manifest(self, name: str) -> dict[str, Any]:
        """What a backup says it is made of, as it was written."""
        path = f"backups/{name}/{MANIFEST}"
        try:
            outer = json.loads(self.read(path))
            text = json.dumps(outer["backup"], sort_keys=True)
            if hashlib.sha256(text.encode()).hexdigest() != outer["sha256"]:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise BackupDamaged(f"{path} was changed or cut short", details=path) from None
        if outer["backup"].get("format") != FORMAT:
            raise BackupDamaged(
                f"{path} is of format {outer['backup'].get('format')}, this version of Concord"
                f" reads {FORMAT}",
                code="backup_format",
            )
        return outer["backup"]

    def manifest_write(self, name: str, backup: dict[str, Any]) -> None:
        text = json.dumps(backup, sort_keys=True)
        outer = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "backup": backup}
        self.write(f"backups/{name}/{MANIFEST}", iter([json.dumps(outer, indent=1).encode()]))

    def blob(self, sha256: str) -> str:
        """The path of a content."""
        name = self.key.name_of(sha256) if self.key else sha256
        return f"artifacts/{name[:2]}/{name}"

    def blobs(self) -> dict[str, int]:
        """{path as `blob` says it: bytes as they lie there} of everything that is held."""
        return {
            path.removesuffix(_ENCRYPTED): seen.size
            for path, seen in self._files("artifacts").items()
            if path.endswith(_ENCRYPTED) == (self.key is not None)
        }

    def size_there(self, size: int) -> int:
        """Bytes that a file of `size` takes."""
        return encrypted_size(size) if self.key else size

    def write(self, path: str, blocks: Iterator[bytes], *, sha256: str = "") -> Stored:
        """A whole file or none; with `sha256` only that content, or raises `ContentChanged`."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for block in blocks:
                digest.update(block)
                size += len(block)
                yield block

        there, coded = self._there(path), counted()
        with self._clear(path), self.store.written_whole(there) as file:
            for part in encrypted(coded, self.key, path) if self.key else coded:
                file.write(part)
            if sha256 and digest.hexdigest() != sha256:
                raise ContentChanged(path)
        return Stored(digest.hexdigest(), size)

    def blocks(self, path: str) -> Iterator[bytes]:
        """The plain bytes of a file."""
        with self._clear(path):
            coded = path + _ENCRYPTED
            if self.key is None and not self.store.exists(path) and self.store.exists(coded):
                with self.store.open(coded) as file:
                    yield from decrypted(file, None, path)  # raises what is said of it
            with self.store.open(self._there(path)) as file:
                if self.key:
                    yield from decrypted(file, self.key, path)
                else:
                    while block := file.read(_BLOCK):
                        yield block

    def checked(self, path: str, sha256: str, size: int, called: str = "") -> Iterator[bytes]:
        """The plain bytes, compared with their hash: raises `BackupDamaged` at the end."""
        digest, seen = hashlib.sha256(), 0
        for block in self.blocks(path):
            digest.update(block)
            seen += len(block)
            yield block
        if (digest.hexdigest(), seen) != (sha256, size):
            raise BackupDamaged(f"{called or path} is not what was backed up", details=path)

    def read(self, path: str) -> bytes:
        return b"".join(self.blocks(path))

    def files(self, folder: str) -> list[str]:
        """Paths below a folder as `read` takes them."""
        return sorted(path.removesuffix(_ENCRYPTED) for path in self._files(folder))

    def delete(self, path: str) -> None:
        with self._clear(path):
            self.store.delete_file(self._there(path))

    def delete_backup(self, name: str) -> None:
        """The manifest first: what is left of it is no backup."""
        self.delete(f"backups/{name}/{MANIFEST}")
        with self._clear(name):
            self.store.delete_tree(f"backups/{name}")

    def clean(self) -> None:
        """Halves of files that killed backups left a day ago."""
        self.store.delete_partial(older_than=86_400)

    def _there(self, path: str) -> str:
        return path + _ENCRYPTED if self.key else path

    def _files(self, folder: str) -> dict[str, Seen]:
        with self._clear(folder):
            return self.store.files(folder)

    @contextmanager
    def _clear(self, path: str) -> Iterator[None]:
        try:
            yield
        except DomainError:
            raise
        except EncryptionError as error:
            raise BackupDamaged(f"{error}.", details=path) from error
        except ArtifactMissing as error:
            raise BackupDamaged(f"{path} is missing in {self.words}.", details=path) from error
        except ArtifactError as error:
            raise Unavailable(f"{error}.", code="store_unreachable") from error
        except OSError as error:
            if error.errno in _DISK:
                raise disk_full(self.words) from error
            raise Unavailable(
                f"{self.words} cannot be used: {error.strerror or error}.", code="target_failed"
            ) from error


def disk_full(where: str) -> Unavailable:
    return Unavailable(
        f"The disk of {where} is full. Nothing that was half written counts, and earlier backups"
        " are as they were.",
        code="disk_full",
    )


def target_of(url: str, key_file: str) -> Target:
    """Raises `DomainError` where the key cannot be read."""
    if not url:
        raise DomainError("Name a folder or an address for backups.", code="no_target")
    if "://" not in url:
        url = str(Path(url).expanduser().resolve())
    try:
        key = Key.read(Path(key_file)) if key_file else None
    except EncryptionError as error:
        raise DomainError(f"{error}.", code="backup_key", field="BACKUP_KEY_FILE") from error
    return Target(url, key)


def chosen(target: Target, name: str) -> str:
    """The backup of this name, or the newest."""
    names = target.names()
    if name and name not in names:
        halves = target.unfinished()
        raise Missing(
            f"{target.words} has no backup {name}"
            + (": it was never finished, its manifest is missing." if name in halves else ".")
            + (f" It has {', '.join(names[-5:])}." if names else ""),
            code="no_backup",
        )
    if not names:
        halves = target.unfinished()
        raise Missing(
            f"There is no complete backup in {target.words}"
            + (
                f": {', '.join(halves[-3:])} has no manifest, so it was never finished."
                if halves
                else "."
            ),
            code="no_backup",
        )
    return name or names[-1]


def new_name(now: datetime) -> str:
    return now.astimezone(UTC).strftime(_NAME)


def name_time(name: str) -> datetime:
    return datetime.strptime(name, _NAME).replace(tzinfo=UTC)


def address_words(url: str) -> str:
    """Without the user, the password and what follows a question mark."""
    parts = urlsplit(url)
    if not parts.scheme:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def file_blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
