"""Telling a worker of a dataset to freeze. The draft's row is the truth; the message is a hint that
may be lost or doubled, and is sent again by the sweep."""

from apps.labeling.dispatch import task_send
from workers.contract import wire


def freeze_send(snapshot: str) -> bool:
    """True: the broker has taken the message."""
    return task_send(wire.TASK_FREEZE, snapshot)
