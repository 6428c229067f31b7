"""Whether a launch may look at the held-out splits of its datasets once more."""

from collections.abc import Mapping

from apps.snapshots.models import READ_ONLY_KINDS, Snapshot, SplitAccess
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.selectors.looks import held_out
from apps.snapshots.services.looks import look_check
from apps.training.models import Run
from apps.training.services.kinds import Input

# Kinds that read training rows alone or no dataset, and those that choose no model.
_LOOK_AT_NONE = frozenset(
    {Run.Kind.GENERATE, Run.Kind.DRILL, Run.Kind.PUSH, Run.Kind.SERVED, *READ_ONLY_KINDS}
)


def launch_looks_check(*, run: Run, inputs: Mapping[str, Input]) -> None:
    """Raises `Conflict` (`look_needs_second_person`) on `inputs.<role>` where the run would look at
    a held-out split beyond its budget and nobody but its launcher has signed that look. Call it in
    the transaction that stores the run."""
    if run.kind in _LOOK_AT_NONE:
        return
    given = {role: one for role, one in inputs.items() if isinstance(one, Snapshot)}
    for role, snapshot in sorted(given.items(), key=lambda item: item[1].pk):  # always locked so
        look_check(
            snapshot=snapshot,
            person=run.created_by,
            splits=[name for name in held_out(snapshot) if name not in PRIVATE_SPLITS],
            pending=_pending(snapshot),
            field=f"inputs.{role}",
        )


def _pending(snapshot: Snapshot) -> int:
    """Runs under way that will look at it and have not."""
    live = Run.objects.filter(inputs__snapshot=snapshot, state__in=Run.LIVE_STATES).exclude(
        kind__in=_LOOK_AT_NONE
    )
    ids = set(live.values_list("pk", flat=True))
    seen = SplitAccess.objects.filter(snapshot=snapshot, run__in=ids).values_list("run", flat=True)
    return len(ids - set(seen))
