"""Where frozen datasets lie: addresses, hashes of files, and names in the place of people."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from apps.accounts.identity import NameOf, names_under
from workers.artifacts import Store

# Where snapshots lie in the artifact store, and what is read from it for people.


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


# Reading back what was written.


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


# What a dataset calls the people behind its votes: a name that says nothing outside of it.
#
# `person-` and 12 hex digits of an HMAC of the person's id, under SECRET_KEY and the dataset's own
# key: the same person has one name in all files and exports of a dataset and another in the next
# dataset, so that two exports cannot be joined by it. The key is a hash of what the dataset is
# made of, so freezing the same votes by the same recipe again gives the same files. Datasets
# frozen before there were keys name the ids themselves, as their files do.

KEY = "pseudonyms"  # of a snapshot's counts


def dataset_key(*, project: str, recipe: Mapping[str, Any], votes: Iterable[int]) -> str:
    """32 hex digits for a recipe over these votes."""
    made_of = json.dumps([project, recipe, sorted(votes)], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:32]


def names_in(counts: Mapping[str, Any]) -> NameOf:
    """The names that a frozen dataset with these counts uses."""
    return names_under(counts[KEY]) if KEY in counts else "person-{}".format
