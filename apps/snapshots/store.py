"""Where snapshots lie in the artifact store."""

from django.conf import settings

from workers.artifacts import Store


def artifact_store() -> Store:
    return Store(settings.ARTIFACTS_URL)


def folder_of(snapshot_id: str) -> str:
    """The snapshot's tree, relative to the store."""
    return f"snapshots/{snapshot_id}"


def private_folder_of(snapshot_id: str) -> str:
    """The tree of its private splits, which no run is given."""
    return f"private/{snapshot_id}"
