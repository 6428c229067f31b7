"""Votes per second of the service, the label screen and imports; beside the cycle in plain ORM.

One cycle stores a vote, decides its comparison and leases the next pair. The named alternative does
the same work with ordinary ORM calls (benchmarks/plain_orm.py); both run in this process on the
same PostgreSQL, in turns of 100 cycles so that a busy machine slows both alike, and must end with
the same decisions. `screen` is the whole request of the label screen, through all middleware, by
Django's test client. What a running server does with many annotators is benchmarks/labeling.py.

Starts PostgreSQL and Redis of its own in a temporary folder.
Run: python -m benchmarks.labeling_service
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

PAIRS = 1500
TURN = 100  # cycles before the other side's turn
TURNS = 10
SCREEN_CYCLES = 600
PAST_VOTES = 6000


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
    from apps.labeling.models import Annotator

    project = Project.objects.create(slug=slug, name=slug)
    services.labeling_set_up(project=project)
    report = services.comparisons_import(project=project, rows=rows(n))
    people = [User.objects.create(username=f"{slug}-{k}", is_active=True) for k in range(2)]
    Membership.objects.bulk_create(
        [Membership(project=project, user=user, role="annotator") for user in people]
    )
    Annotator.objects.bulk_create(
        [Annotator(project=project, user=user, acknowledged_version=1) for user in people]
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
    from benchmarks import plain_orm

    held = plain_orm.lease(project, annotator)

    def cycle() -> None:
        nonlocal held
        _, held = plain_orm.vote(project, annotator, held.pk, "a")

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
