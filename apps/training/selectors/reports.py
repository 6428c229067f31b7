"""JSON reports that a run left as files.

A trainer wrote them, so nothing in them is taken on trust: one that is missing, too large, damaged
or of another version is a sentence and never an error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.common.storable import storable
from apps.snapshots.store import artifact_store
from apps.training.models import Artifact, Run
from workers.artifacts import ArtifactError

LARGEST = 8_000_000  # bytes; a page is no place for more
_UNREADABLE = (ValueError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Report:
    """`data` is empty where there is no such file, or where `problem` says why it is not shown."""

    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def report_read(run: Run, name: str, *, version: int | None = 1) -> Report:
    """The newest file of this name that the run left; `version` None for one that says none."""
    row = Artifact.objects.filter(run=run, name=name).order_by("-attempt", "-seq").first()
    if row is None:
        return Report()
    if row.size_bytes > LARGEST:
        return Report(problem=f"Its {name} is larger than {LARGEST // 10**6} MB.")
    try:
        text = artifact_store().read_bytes(row.uri, sha256=row.sha256)
        data = storable(json.loads(text))
    except ArtifactError as error:
        return Report(problem=f"Its {name} cannot be read: {error}.")
    except OSError:
        return Report(problem="The artifact store does not answer.")
    except _UNREADABLE:
        return Report(problem=f"Its {name} is damaged.")
    if not isinstance(data, dict) or data.get("version") != version:
        return Report(problem=f"Its {name} is not in a format this version can read.")
    return Report(data=data)
