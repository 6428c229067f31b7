"""Votes per second: the service, the label screen, imports; beside the same cycle in plain ORM.

One cycle stores a vote, decides its comparison and leases the next pair. The named alternative does
the same work with ordinary ORM calls (select_for_update, get, save, update_or_create); both run in
this process on the same PostgreSQL, in turns of 100 cycles so that a busy machine slows both alike,
and must end with the same decisions. `screen` is the whole request of the label screen, through all
middleware, by Django's test client.

Starts PostgreSQL and Redis of its own in a temporary folder. Run: python -m benchmarks.labeling
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.report import print_report, versions

PAIRS = 1500
TURN = 100  # cycles before the other side's turn
TURNS = 10
SCREEN_CYCLES = 600
PAST_VOTES = 6000


@contextmanager
def site() -> Iterator[None]:
    """Django on servers of its own, migrated and empty."""
    folder = tempfile.mkdtemp(prefix="concord-bench-")
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 (PostgreSQL, never root, must be able to enter)
    for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL", "PRODUCTION", "DEBUG"):
        os.environ.pop(name, None)
    os.environ |= {"VAR_DIR": folder, "DJANGO_SETTINGS_MODULE": "config.settings"}
    os.environ["LOG_LEVEL"] = "ERROR"
    from apps.common import embedded

    try:
        with embedded.servers():
            import django
            from django.core.management import call_command
            from django.db import connection

            django.setup()
            call_command("migrate", verbosity=0)
            call_command("collectstatic", interactive=False, verbosity=0)
            yield
            connection.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows(n: int) -> list[dict[str, str]]:
    return [
        {
            "id": str(number),
            "prompt": f"Question {number}: should plastic water bottles be banned?",
            "response_a": f"Yes, says answer {number}. " + "Tap water costs less. " * 8,
            "response_b": f"No, says answer {number}. " + "People need water when away. " * 8,
        }
        for number in range(n)
    ]


def project_make(slug: str, n: int) -> tuple[Any, list[Any], float]:
    """(project, two annotators, seconds the import took)."""
    from apps.accounts.models import Membership, Project, User
    from apps.labeling import services

    project = Project.objects.create(slug=slug, name=slug)
    services.labeling_set_up(project=project)
    report = services.comparisons_import(project=project, rows=rows(n))
    people = [User.objects.create(username=f"{slug}-{k}", is_active=True) for k in range(2)]
    Membership.objects.bulk_create(
        [Membership(project=project, user=user, role="annotator") for user in people]
    )
    return project, people, report.seconds


# --- one cycle, twice ----------------------------------------------------------------------------


def service_cycles(project: Any, annotator: Any) -> Callable[[], None]:
    from apps.labeling import services

    held = services.slot_lease_next(project=project, annotator=annotator)

    def cycle() -> None:
        nonlocal held
        held = services.vote_cast(
            slot=held.slot, annotator=annotator, idempotency_key=held.key, choice="a"
        ).next

    return cycle


def orm_cycles(project: Any, annotator: Any) -> Callable[[], None]:
    """What one would write first: correct under concurrency, a call per thing."""
    from datetime import timedelta

    from django.db import transaction
    from django.db.models import Count, Exists, OuterRef
    from django.utils import timezone

    from apps.accounts.models import Membership
    from apps.labeling import services
    from apps.labeling.models import (
        Comparison,
        Decision,
        Guideline,
        LabelingSettings,
        Skip,
        Slot,
        Vote,
    )
    from measures.voting import decide

    def lease() -> Any:
        mine = Slot.objects.filter(comparison=OuterRef("comparison"), annotator=annotator)
        skipped = Skip.objects.filter(comparison=OuterRef("comparison"), annotator=annotator)
        slot = (
            Slot.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(~Exists(mine), ~Exists(skipped), project=project, state="free")
            .order_by("shuffle")
            .first()
        )
        slot.state, slot.annotator, slot.left_is = "leased", annotator, "a"
        slot.leased_at = timezone.now()
        slot.leased_until = slot.leased_at + timedelta(seconds=900)
        slot.save()
        return Slot.objects.select_related(
            "comparison__prompt", "comparison__response_a", "comparison__response_b"
        ).get(pk=slot.pk)

    with transaction.atomic():
        held = lease()

    @transaction.atomic
    def cycle() -> None:
        nonlocal held
        Membership.objects.get(project=project, user=annotator)
        slot = Slot.objects.select_for_update().get(pk=held.pk, annotator=annotator)
        comparison = Comparison.objects.select_for_update().get(pk=slot.comparison_id)
        settings = LabelingSettings.objects.get(project=project)
        Vote.objects.create(
            project=project,
            comparison=comparison,
            slot=slot,
            annotator=annotator,
            choice="a",
            chosen_id=comparison.response_a_id,
            left_is=slot.left_is,
            guideline=Guideline.objects.filter(project=project).latest("version"),
            idempotency_key=str(slot.pk),
            cast_at=timezone.now(),
        )
        slot.state, slot.leased_until = "done", None
        slot.save()
        counts = dict(
            Vote.objects.filter(comparison=comparison, is_current=True)
            .values_list("choice")
            .annotate(n=Count("id"))
        )
        decision = decide(counts, services.rule_of(settings))
        Decision.objects.update_or_create(
            comparison=comparison,
            defaults={
                "project": project,
                "outcome": decision.outcome,
                "winner": decision.winner or "",
                "n_a": counts.get("a", 0),
                "n_agreeing": decision.n_agreeing,
                "share": decision.share,
                "reason": decision.reason,
            },
        )
        comparison.n_votes = decision.n_votes
        comparison.state = "decided" if decision.winner else "open"
        comparison.save()
        held = lease()

    return cycle


def screen_cycles(project: Any, annotator: Any) -> Callable[[], None]:
    """The label screen's own request: session, CSRF check, form in, next pair's HTML out."""
    import re

    from django.test import Client

    client = Client(enforce_csrf_checks=True, headers={"host": "localhost"})
    client.force_login(annotator)
    root = f"/p/{project.slug}/label/"
    fields = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
    page = client.get(root).content.decode()

    def cycle() -> None:
        nonlocal page
        sent = dict(fields.findall(page)) | {"answer": "left", "active_ms": 900, "wall_ms": 1000}
        answer = client.post(root + "vote/", sent, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        page = answer.content.decode()

    return cycle


# --- measuring -----------------------------------------------------------------------------------


def timed(cycle: Callable[[], None], times: int) -> list[float]:
    """Milliseconds of each cycle."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        cycle()
        spent.append(1000 * (time.perf_counter() - started))
    return spent


def figures(spent: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(spent, n=100)
    return {
        "per_second": 1000 * len(spent) / sum(spent),
        "p50_ms": cuts[49],
        "p95_ms": cuts[94],
        "p99_ms": cuts[98],
    }


def statements_per_cycle(cycle: Callable[[], None]) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        cycle()
    return sum(query["sql"] not in ("BEGIN", "COMMIT") for query in captured.captured_queries)


def past_votes(project: Any) -> dict[str, float]:
    from apps.labeling import services

    votes = [
        {"comparison": str(number), "annotator": f"w{(number * 7 + k) % 900}", "choice": "a"}
        for number in range(PAST_VOTES // 4)
        for k in range(4)
    ]
    report = services.votes_import(project=project, rows=votes)
    assert report.n_created == PAST_VOTES
    return {"per_second": PAST_VOTES / report.seconds}


def main() -> None:
    with site():
        from apps.labeling.models import Decision

        project, (one, two), import_s = project_make("service", PAIRS)
        orm_project, (orm_one, _), _ = project_make("orm", PAIRS)
        service, orm = service_cycles(project, one), orm_cycles(orm_project, orm_one)
        timed(service, 20), timed(orm, 20)  # connections, plans and caches are warm
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(TURNS):
            ours += timed(service, TURN)
            theirs += timed(orm, TURN)
        tallies = [
            sorted(
                Decision.objects.filter(project=p)
                .values_list("outcome", "winner", "n_a")
                .distinct()
            )
            for p in (project, orm_project)
        ]
        assert tallies[0] == tallies[1]

        screen = screen_cycles(project, two)
        timed(screen, 20)
        seen = timed(screen, SCREEN_CYCLES)
        statements = {
            "service": statements_per_cycle(service),
            "orm": statements_per_cycle(orm),
            "screen": statements_per_cycle(screen),
        }
        replay_project, _, _ = project_make("replay", PAST_VOTES // 4)
        replay = past_votes(replay_project)

    by_service, by_orm, by_screen = figures(ours), figures(theirs), figures(seen)
    ratio = by_service["per_second"] / by_orm["per_second"]
    print_report(
        "Vote, decide, lease the next pair: one client, one process",
        [
            row("service", by_service, statements["service"]),
            row("plain ORM", by_orm, statements["orm"]),
            row("label screen", by_screen, statements["screen"]),
            {"path": "import of past votes", "per second": round(replay["per_second"], 1)},
            {"path": "import of comparisons", "per second": round(PAIRS / import_s, 1)},
        ],
        {
            "cycles_per_second": rounded(by_service),
            "screen_cycles_per_second": rounded(by_screen),
            "alternative": "the same cycle in plain ORM calls, same run",
            "alternative_cycles_per_second": rounded(by_orm),
            "ratio": round(ratio, 2),
            "statements_per_cycle": statements,
            "past_votes_per_second": round(replay["per_second"], 1),
            "comparisons_per_second": round(PAIRS / import_s, 1),
            "pairs": PAIRS,
            "versions": versions("django", "psycopg"),
        },
    )


def row(path: str, found: dict[str, float], statements: int) -> dict[str, Any]:
    return {
        "path": path,
        "per second": round(found["per_second"], 1),
        "p50 ms": round(found["p50_ms"], 2),
        "p95 ms": round(found["p95_ms"], 2),
        "p99 ms": round(found["p99_ms"], 2),
        "statements": statements,
    }


def rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in found.items()}


if __name__ == "__main__":
    main()
