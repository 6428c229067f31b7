"""Where snapshots lie in the artifact store, and what is read from it for people."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings

from workers.artifacts import Store


def artifact_store() -> Store:
    return Store(settings.ARTIFACTS_URL)


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder on the disk that also holds the state: `/tmp` may be small or in memory."""
    parent = Path(settings.VAR_DIR) / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="snapshot-") as folder:
        yield Path(folder)


def artifact_open(uri: str, *, sha256: str) -> IO[bytes]:
    """A file of the store that is whole: its hash is compared before its first byte is given, so
    that nobody is sent half of one that turns out to be another. The caller closes it.

    Raises `ArtifactError` when it is missing or damaged, or the store does not answer."""
    with scratch() as cache:  # of a store elsewhere; the open file outlives its name
        return artifact_store().get_file(uri, sha256=sha256, cache=cache).open("rb")


def folder_of(snapshot_id: str) -> str:
    """The snapshot's tree, relative to the store."""
    return f"snapshots/{snapshot_id}"


def private_folder_of(snapshot_id: str) -> str:
    """The tree of its private splits, which no run is given."""
    return f"private/{snapshot_id}"
