"""The artifact store: files and file trees under one URL, named by content.

`ARTIFACTS_URL` is a folder by default and may be any fsspec URL (S3 …). Importable by apps: no
torch, no Django. Every path is relative to the store and may not leave it.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

import fsspec

MANIFEST = "manifest.json"
_BLOCK = 1 << 20


class ArtifactError(ValueError):
    """A path that leaves the store, a file that is missing, or content that is not as named."""


def _checked(relative: str) -> str:
    path = PurePosixPath(relative)
    if not relative or path.is_absolute() or ".." in path.parts or "\\" in relative:
        raise ArtifactError(f"artifact path '{relative}' leaves the store")
    return str(path)


class Store:
    """Reads and writes below one root."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self.url)

    def _at(self, relative: str) -> str:
        return f"{self._root}/{_checked(relative)}"

    def open(self, relative: str, mode: str = "rb") -> IO[Any]:
        """A file object; folders are made for writing modes."""
        path = self._at(relative)
        if "r" not in mode:
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        elif not self._fs.exists(path):
            raise ArtifactError(f"artifact '{relative}' is missing")
        return self._fs.open(path, mode)

    def exists(self, relative: str) -> bool:
        return self._fs.exists(self._at(relative))

    def write_bytes(self, relative: str, data: bytes) -> str:
        """Writes whole, returns the SHA-256 of the content."""
        with self.open(relative, "wb") as file:
            file.write(data)
        return hashlib.sha256(data).hexdigest()

    def read_bytes(self, relative: str, *, sha256: str | None = None) -> bytes:
        """Raises `ArtifactError` when missing, or when the content is not that of `sha256`."""
        with self.open(relative) as file:
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
        self._fs.invalidate_cache(path)  # others write there too
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        return sorted(
            PurePosixPath(entry["name"]).name for entry in found if entry["type"] == "file"
        )

    def delete_tree(self, relative: str) -> None:
        path = self._at(relative)
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def put_tree(self, local: Path, relative: str) -> tuple[str, int]:
        """Copy a local folder into the store with a manifest; returns (sha256, bytes).

        The manifest is written last, so a tree without one is an unfinished copy. When the store
        is that same folder nothing is copied.
        """
        manifest, size = tree_manifest(local)
        text = json.dumps(manifest, sort_keys=True, indent=1).encode()
        target = self._at(relative)
        if Path(target).resolve() != local.resolve() or not self._is_local():
            for name in manifest:
                with (local / name).open("rb") as src, self.open(f"{relative}/{name}", "wb") as dst:
                    shutil.copyfileobj(src, dst, _BLOCK)
        self.write_bytes(f"{relative}/{MANIFEST}", text)
        return hashlib.sha256(text).hexdigest(), size

    def get_tree(self, relative: str, *, sha256: str, cache: Path) -> Path:
        """A local folder with the tree's files, verified against its manifest and `sha256`.

        A store on this machine's disk is read in place; others are copied to `cache/<sha256>`.
        """
        text = self.read_bytes(f"{relative}/{MANIFEST}", sha256=sha256)
        manifest: dict[str, str] = json.loads(text)
        if self._is_local():
            folder = Path(self._at(relative))
        else:
            folder = cache / sha256
            for name in manifest:
                target = folder / _checked(name)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    part = target.with_name(target.name + ".part")
                    with self.open(f"{relative}/{name}") as src, part.open("wb") as dst:
                        shutil.copyfileobj(src, dst, _BLOCK)
                    part.rename(target)
        for name, digest in manifest.items():
            if file_sha256(folder / _checked(name)) != digest:
                raise ArtifactError(f"artifact '{relative}/{name}' is damaged: wrong content hash")
        return folder

    def get_file(self, relative: str, *, sha256: str, cache: Path) -> Path:
        """A local copy of one file, verified against the hash of its bytes.

        A store on this machine's disk is read in place; others are copied to `cache/<sha256>`.
        """
        if self._is_local():
            path = Path(self._at(relative))
        else:
            path = cache / sha256 / PurePosixPath(_checked(relative)).name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(path.name + ".part")
                with self.open(relative) as src, part.open("wb") as dst:
                    shutil.copyfileobj(src, dst, _BLOCK)
                part.rename(path)
        if not path.exists():
            raise ArtifactError(f"artifact '{relative}' is missing")
        if file_sha256(path) != sha256:
            raise ArtifactError(f"artifact '{relative}' is damaged: wrong content hash")
        return path

    def local_path(self, relative: str) -> Path | None:
        """The path on this machine's disk, or None for a remote store."""
        return Path(self._at(relative)) if self._is_local() else None

    def _is_local(self) -> bool:
        return "file" in (
            (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        )


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a local file; `ArtifactError` when it is missing."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError as error:
        raise ArtifactError(f"file '{path.name}' is missing") from error
    return digest.hexdigest()


def tree_manifest(folder: Path) -> tuple[dict[str, str], int]:
    """({relative name: sha256}, total bytes) of a local folder, without its own manifest."""
    names = sorted(
        str(path.relative_to(folder).as_posix())
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    )
    size = sum((folder / name).stat().st_size for name in names)
    return {name: file_sha256(folder / name) for name in names}, size
