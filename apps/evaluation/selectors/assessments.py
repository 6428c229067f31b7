"""What the newest look at a reward model found: findings of its assessment, as the run left them.

The file is the run's `assessment.json` in the artifact store, read by its hash. One that is missing
or broken is said on the page and never an error: the lines are then not measured.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.evaluation.lines import LINES
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from apps.training.selectors import checkpoint_for_use
from apps.training.services.kinds import run_inputs
from measures.blocks import Example
from measures.trust.findings import Finding, finding_from_json
from workers.artifacts import ArtifactError

FILE = "assessment.json"
VERSION = 1
_LARGEST = 32_000_000  # bytes; a page is no place for more
_MOST_EXAMPLES = 10
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Assessment:
    """One finished assessment. findings: {line: Finding} of the lines that it answered; `broken`
    says why there are none, empty when the file could be read."""

    run: Run
    findings: Mapping[str, Finding] = field(default_factory=dict)
    top: tuple[Example, ...] = ()
    bottom: tuple[Example, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""


def assess_runs(checkpoint: Checkpoint) -> QuerySet[Run]:
    """All assessments of this model, newest first, also those under way and those that failed."""
    given = Q(inputs__role="reward", inputs__checkpoint=checkpoint)
    # A run that still waits names the run it waits for; its checkpoint is known once that ends.
    if checkpoint == checkpoint_for_use(checkpoint.run):
        given |= Q(
            inputs__role="reward",
            inputs__upstream=checkpoint.run_id,
            inputs__checkpoint__isnull=True,
        )
    rows = Run.objects.filter(given, project=checkpoint.project_id, kind=Run.Kind.ASSESS)
    return rows.select_related("created_by").order_by("-created_at", "-pk")


def assessment_of(checkpoint: Checkpoint) -> Assessment | None:
    """The newest finished one; None where nobody has assessed the model to the end."""
    run = assess_runs(checkpoint).filter(state=Run.State.FINISHED).order_by("-ended_at").first()
    return None if run is None else assessment_read(run)


def assessment_read(run: Run) -> Assessment:
    """What a finished assessment left."""
    row = Artifact.objects.filter(run=run, name=FILE).order_by("-attempt", "-seq").first()
    if row is None:
        return Assessment(run, broken=f"The run finished without leaving its {FILE}.")
    if row.size_bytes > _LARGEST:
        return Assessment(run, broken=f"Its {FILE} is larger than {_LARGEST // 10**6} MB.")
    try:
        parsed = _read(settings.ARTIFACTS_URL, row.uri, row.sha256)
    except ArtifactError as error:
        return Assessment(run, broken=f"Its {FILE} cannot be read: {error}.")
    except OSError:
        return Assessment(run, broken="The artifact store does not answer.")
    except _UNREADABLE:
        return Assessment(run, broken=f"Its {FILE} is not in a format this version can read.")
    return Assessment(
        run, parsed["findings"], parsed["top"], parsed["bottom"], parsed["model"], broken=""
    )


def dataset_of(run: Run) -> Snapshot | None:
    """The dataset of comparisons that a run was trained or assessed on."""
    row = RunInput.objects.filter(run=run, role="data").select_related("snapshot").first()
    return row.snapshot if row else None


def start_inputs(checkpoint: Checkpoint) -> dict[str, str]:
    """{role: reference} that a first assessment begins with: what the model learned from."""
    found = {}
    for role, given in run_inputs(checkpoint.run).items():
        if role == "data" and isinstance(given, Snapshot):
            found["data"] = f"snapshot:{given.pk}"
        elif role == "sft" and isinstance(given, Checkpoint):
            found["sft"] = f"checkpoint:{given.pk}"
    return found


@lru_cache(maxsize=64)
def _read(store: str, uri: str, sha256: str) -> dict[str, Any]:
    """Named by content, so what was read once stays true; failures are not kept."""
    data = artifact_store().read_bytes(uri, sha256=sha256)
    made = storable(json.loads(data, parse_constant=lambda _: None))
    if made["version"] != VERSION:
        raise ValueError(f"version {made['version']}")
    found = [_finding(one) for one in made["findings"]]
    tops = made.get("tops") or {}
    return {
        "findings": {one.line: one for one in found if one is not None},
        "top": _examples(tops.get("top")),
        "bottom": _examples(tops.get("bottom")),
        "model": dict(made.get("model") or {}),
    }


def _finding(data: Any) -> Finding | None:
    """None for a line that this version does not know, or cannot read: it is not measured then."""
    try:
        finding = finding_from_json(data)
    except _UNREADABLE:
        return None
    return finding if finding.line in LINES and _is_sound(finding) else None


def _is_sound(finding: Finding) -> bool:
    """Whether its words are words and its figure's numbers numbers."""
    of = finding.figure
    numbers = () if of is None else (of.value, of.low, of.high, of.n)
    return isinstance(finding.says, str) and all(
        number is None or isinstance(number, int | float) for number in numbers
    )


def _examples(rows: Any) -> tuple[Example, ...]:
    return tuple(Example(**row) for row in (rows or ())[:_MOST_EXAMPLES])


def storable(value: Any) -> Any:
    """Fit for jsonb and for a page: no NUL, no half surrogates, no infinities."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(storable(name)): storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
