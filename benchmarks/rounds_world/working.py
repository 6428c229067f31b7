"""Queued runs and freezes done in this process, by what workers do with them.

A run is trained by `workers.train.train`, as its child process would, and its events come back by
`spool_import`, as those of a machine that was cut off do. So nothing waits for a broker, and torch
is imported once.
"""

import signal
from pathlib import Path

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
from apps.snapshots.models import Snapshot
from apps.snapshots.services.freezing import snapshot_run
from apps.training.models import Run, RunAttempt
from apps.training.services.receiving import spool_import
from workers.contract.jobs import spec_from_json
from workers.data.snapshot import observe
from workers.emitter import EVENTS_FILE, Emitter
from workers.train import StopSignal, train


def run_do(run: Run, work: Path) -> Run:
    """Train a queued run; it has ended when this returns."""
    attempt = RunAttempt.objects.get(run=run, number=run.attempt)
    spec = spec_from_json(attempt.spec)
    folder = work / run.pk
    folder.mkdir(parents=True)
    writer = Emitter(folder / EVENTS_FILE, run=run.pk, attempt=attempt.number)
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        train(spec, folder, writer, StopSignal(folder))
    finally:
        observe(None)  # a child process ends here, and this one reads on
        writer.close()
        signal.signal(signal.SIGTERM, on_term)
    with (folder / EVENTS_FILE).open("rb") as lines:
        told = spool_import(lines=lines)
    assert not told.problems, told.problems
    return Run.objects.select_related("project").get(pk=run.pk)


def work_do(project_id: str, work: Path) -> int:
    """Do everything that is queued in a project now; how many runs and freezes."""
    drafts = Snapshot.objects.filter(
        project=project_id, state=Snapshot.State.DRAFT, queued_at__isnull=False
    )
    done = 0
    for pk in list(drafts.values_list("pk", flat=True)):
        snapshot_run(snapshot=pk)
        done += 1
    for run in list(Run.objects.filter(project=project_id, state=Run.State.QUEUED)):
        run_do(run, work)
        done += 1
    return done
