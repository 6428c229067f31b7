"""What must be known of a run before it starts, so that it can be repeated afterwards."""

from collections.abc import Mapping

from django.conf import settings

from apps.common.errors import Conflict
from apps.snapshots.models import Snapshot
from apps.training.code_version import UNKNOWN
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.services.kinds import Input


def context_check(*, run: Run, inputs: Mapping[str, Input]) -> None:
    """Raises `Conflict` (context_incomplete) naming everything that is missing: a run whose code
    or inputs nobody can name again proves nothing.

    Configuration and seed were checked before; library versions are the worker's, which sends them
    with its first event. The input of a run that still trains gets its hash when that ends.
    """
    missing = []
    if run.code_version in ("", UNKNOWN):
        missing.append(
            "the code version (start from a git checkout, or install the package with its version)"
        )
    if not settings.ARTIFACTS_URL:
        missing.append("where checkpoints and logs are kept (ARTIFACTS_URL)")
    missing += [
        f"the content hash of the input '{role}' ({given.pk})"
        for role, given in inputs.items()
        if isinstance(given, Snapshot | Checkpoint | Artifact) and not given.sha256
    ]
    if missing:
        raise Conflict(
            f"The run could not be repeated, so it is not launched. Missing: {'; '.join(missing)}.",
            code="context_incomplete",
        )
