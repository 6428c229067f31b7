"""How well a model of words alone predicts the winner, from the report stored with a dataset."""

import json

from apps.snapshots.models import Snapshot
from apps.snapshots.store import artifact_store
from measures.estimate import Interval
from workers.artifacts import ArtifactError

REPORT, CHECK = "report.json", "growth"


def text_baseline(snapshot: Snapshot) -> Interval | None:
    """The end of its learning curve, on groups it has not seen; None without such a report."""
    try:
        report = json.loads(artifact_store().read_bytes(f"{snapshot.uri}/{REPORT}"))
    except (ArtifactError, ValueError):
        return None
    curves = [
        part["rows"]
        for check in report.get("checks", [])
        if check.get("key") == CHECK
        for part in check.get("evidence", [])
        if part.get("kind") == "curve" and part.get("rows")
    ]
    if not curves:
        return None
    last = curves[0][-1]
    if last.get("value") is None:
        return None
    return Interval(
        value=last["value"],
        low=last.get("low"),
        high=last.get("high"),
        n=int(last.get("n") or 0),
        no_interval=last.get("why") or None,
    )
