"""One task of a worker on a large project, in a process of its own: its seconds and its memory.

Run by `benchmarks.ten_million`: python -m benchmarks.ten_million_world.jobs JOB PROJECT [FOLDER]
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

ROWS = 20_000  # of an import


def main() -> None:
    import django

    django.setup()
    from apps.accounts.models import Project
    from benchmarks.imports import database_cpu

    name, slug, *rest = sys.argv[1:]
    project = Project.objects.get(slug=slug)
    work = JOBS[name](project, *rest)
    database, began, cpu = database_cpu(), time.perf_counter(), time.process_time()
    said = work()
    print(
        json.dumps(
            {
                "seconds": round(time.perf_counter() - began, 2),
                "cpu_seconds": round(time.process_time() - cpu, 2),
                "database_cpu_seconds": round(database_cpu() - database, 2),
                "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                **(said or {}),
            }
        )
    )


Work = Callable[[], dict[str, Any] | None]


def agreement_report(project: Any) -> Work:
    from apps.agreement.services.reports import report_refresh

    def work() -> dict[str, Any]:
        report = report_refresh(project=project)
        return {"votes": report.n_votes, "comparisons": report.n_comparisons}

    return work


def annotator_reports(project: Any) -> Work:
    from apps.agreement.services.annotators import annotator_reports_refresh

    return lambda: {"people": annotator_reports_refresh(project=project)}


def voters_model(project: Any) -> Work:
    from apps.agreement.services.consensus import consensus_refresh

    def work() -> dict[str, Any]:
        found = consensus_refresh(project=project)
        return {"written": found.redecided.written if found else 0}

    return work


def decisions_again(project: Any) -> Work:
    from apps.labeling.services.redeciding import decisions_redo

    return lambda: {"written": decisions_redo(project=project).written}


def sweeps(project: Any) -> Work:
    """What the scheduler asks every minute whether there is something to do, in any project."""
    from apps.agreement.selectors.annotators import annotators_stale
    from apps.agreement.selectors.decisions import projects_to_decide, projects_to_fit
    from apps.agreement.selectors.votes import stale_projects

    def work() -> dict[str, Any]:
        found = {}
        for sweep in (stale_projects, annotators_stale, projects_to_fit, projects_to_decide):
            began = time.perf_counter()
            sweep()
            found[sweep.__name__] = round(time.perf_counter() - began, 3)
        return {"each": found}

    return work


def freeze(project: Any) -> Work:
    from apps.snapshots.selectors.snapshots import recipe_default
    from apps.snapshots.services.freezing import snapshot_freeze

    def work() -> dict[str, Any]:
        recipe = recipe_default(project=project)
        made = snapshot_freeze(project=project, name="everything", recipe=recipe, user=None)
        return {"rows": made.counts["rows"]}

    return work


def import_pairs(project: Any) -> Work:
    """20,000 pairs with texts of their own, and then their words into the search."""
    from apps.labeling import services
    from apps.labeling.services.indexing import comparisons_index
    from benchmarks.imports import rows_make

    rows = rows_make(ROWS)

    def work() -> dict[str, Any]:
        report = services.comparisons_import(project=project, rows=rows)
        assert report.n_created == ROWS, report.problems[:3]
        began = time.perf_counter()
        while comparisons_index(seconds=600.0):
            pass
        return {
            "rows_per_second": round(ROWS / report.seconds),
            "words_s": round(time.perf_counter() - began, 2),
        }

    return work


def import_votes(project: Any) -> Work:
    """Five past votes on each of the first 2,000 of these pairs."""
    from apps.labeling import services

    votes = [
        {"comparison": f"pair-{n}", "annotator": f"worker-{k}", "choice": "ab"[(n + k) % 3 == 0]}
        for n in range(ROWS // 10)
        for k in range(n % 40, n % 40 + 5)
    ]

    def work() -> dict[str, Any]:
        report = services.votes_import(project=project, rows=votes, make_room=True)
        assert report.n_created == len(votes), report
        return {"votes_per_second": round(len(votes) / report.seconds)}

    return work


def backup(project: Any, folder: str) -> Work:
    from apps.monitoring.services.backups import backup_make, target_of

    def work() -> dict[str, Any]:
        made = backup_make(target=target_of(folder, ""), say=lambda text: None)
        return {"dump_s": made.seconds["dump"], "dump_mb": round(made.database_bytes / 1e6)}

    return work


JOBS: dict[str, Callable[..., Work]] = {
    job.__name__: job
    for job in (
        agreement_report,
        annotator_reports,
        voters_model,
        decisions_again,
        sweeps,
        freeze,
        import_pairs,
        import_votes,
        backup,
    )
}

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    main()
