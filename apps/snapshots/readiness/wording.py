"""How well a model of words alone predicts the winner, from the report of a dataset."""

from apps.common.errors import Conflict
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.reporting import report_read
from measures.estimate import Interval

CHECK = "growth"
# Datasets frozen before there were reports get theirs made when it is asked for, and kept for a
# day: of more rows than this, that is for the report's own page and not for this one to wait for.
MADE_UP_TO = 5_000


def text_baseline(snapshot: Snapshot) -> Interval | None:
    """The end of its learning curve, on groups it has not seen; None without such a report."""
    n = snapshot.counts.get("rows", {}).get(TRAIN, 0)
    if not snapshot.counts.get("report") and n > MADE_UP_TO:
        return None
    try:
        report = report_read(snapshot=snapshot)
    except Conflict:
        return None
    if report is None:
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
