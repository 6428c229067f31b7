"""What handing out the next pair and taking a vote read with 10,000 and 1,000,000 comparisons.

Two projects in the middle of their work (benchmarks/labeling_world/build.py), each with an
annotator who has just come and one with 3,000 votes behind them. The statements that the services
really execute are caught and explained with ANALYZE and BUFFERS: how many pages of 8 kB they touch
is the figure that neither a warm cache nor other work on the machine changes. The alternative is
the hand-out as one would write it first: sort what is free by its shuffled place, leave out what
this person has met.

Run: python -m benchmarks.labeling_scale [--largest 1000000]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from benchmarks.report import print_report, versions
from benchmarks.site import site

SMALL = 10_000
TIMES = 30  # hand-outs timed, each rolled back
# Shares of the lanes, and what the services' random draw gives, so that the lane is a certain one.
QUEUE = {"gold_share": 0.0, "repeat_share": 0.0, "audit_share": 0.0, "random_share": 0.5}
LANES: dict[str, tuple[dict[str, float], float]] = {
    "random": (QUEUE, 0.1),
    "priority": (QUEUE, 0.9),
    "gold": (QUEUE | {"gold_share": 0.2}, 0.1),
    "repeat": (QUEUE | {"repeat_share": 0.2}, 0.1),
    "audit": (QUEUE | {"audit_share": 0.2}, 0.1),
}
PLAIN = """
select s.id from labeling_slot s
where s.project_id = %(project)s and s.state = 'free'
  and s.task_id not in (select m.task_id from labeling_slot m
                              where m.annotator_id = %(annotator)s)
order by s.shuffle + 0 limit 1 for update skip locked
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--largest", type=int, default=1_000_000, help="comparisons, of tens")
    largest = arguments.parse_args().largest
    with site():
        from benchmarks.labeling_world import build

        found: dict[int, dict[tuple[str, str, str], tuple[float, float]]] = {}
        seconds = {}
        for size in (SMALL, largest):
            began = time.perf_counter()
            built = build.project_build(f"p{size}", size)
            seconds[size] = time.perf_counter() - began
            found[size] = measured(built)
    small, large = found[SMALL], found[largest]
    rows = [
        {
            "annotator": who,
            "lane": lane,
            "statement": statement,
            f"pages, {SMALL:,}": pages,
            f"pages, {largest:,}": large[key][0],
            "ratio": round(large[key][0] / pages, 2),
            f"ms, {SMALL:,}": round(milliseconds, 2),
            f"ms, {largest:,}": round(large[key][1], 2),
        }
        for key, (pages, milliseconds) in small.items()
        if key in large
        for who, lane, statement in [key]
    ]
    plain = ("new", "random", "sorted and filtered (alternative)")
    drawn = ("new", "random", "hand-out, all its statements")
    print_report(
        f"Pages that a hand-out and a vote touch: {SMALL:,} and {largest:,} comparisons",
        rows,
        {
            "pages": {
                f"{who}, {lane}, {statement}": [small[key][0], large[key][0]]
                for key in small
                if key in large
                for who, lane, statement in [key]
            },
            "ratio_of_the_hand_out": round(large[drawn][0] / small[drawn][0], 2),
            "alternative": "sort the free slots, leave out what the person has met; same data",
            "alternative_ratio": round(large[plain][0] / small[plain][0], 2),
            "alternative_pages_to_ours_at_largest": round(large[plain][0] / large[drawn][0], 1),
            "build_seconds": {str(size): round(took, 1) for size, took in seconds.items()},
            "comparisons": [SMALL, largest],
            "versions": versions("django", "psycopg"),
        },
    )


def measured(built: Any) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(pages, milliseconds) by (annotator, lane, statement)."""
    from django.core.cache import cache

    from apps.labeling import selectors, services
    from apps.labeling.models import LabelingSettings
    from benchmarks.labeling_world.explain import reads

    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for lane, (shares, draw) in LANES.items():
        LabelingSettings.objects.filter(project=built.project).update(**shares)
        for who, person in (("new", built.new), ("long", built.long)):

            def hand_out(person: Any = person) -> Any:
                return services.slot_lease_next(project=built.project, annotator=person)

            with patch("random.random", return_value=draw):
                every = reads(hand_out)
                took = timed(hand_out)
            found[who, lane, "hand-out, all its statements"] = (
                sum(read.buffers for read in every),
                took,
            )
            for read in every:
                found[who, lane, read.name] = (read.buffers, read.milliseconds)
            if lane == "random":
                found |= votes(who, lane, hand_out, person)
    for who, person in (("new", built.new), ("long", built.long)):
        cache.clear()

        def count(person: Any = person) -> Any:
            return selectors.remaining_for(project=built.project, annotator=person, n_today=0)

        for read in reads(count):
            found[who, "counted once a minute", read.name] = (read.buffers, read.milliseconds)
    found["new", "random", "sorted and filtered (alternative)"] = plain(built)
    return found


def votes(
    who: str, lane: str, hand_out: Callable[[], Any], person: Any
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """The statements of a vote on the pair in hand, the next hand-out left out."""
    from apps.labeling import services
    from benchmarks.labeling_world.explain import reads

    def vote() -> None:
        held = hand_out()
        services.vote_cast(
            slot=held.slot,
            annotator=person,
            idempotency_key=held.key,
            choice="a",
            lease_next=False,
        )

    names = ("LOCK_FOR_VOTE", "INSERT_VOTE", "STORE_DECISION")
    return {
        (who, lane, read.name): (read.buffers, read.milliseconds)
        for read in reads(vote)
        if read.name in names
    }


def timed(act: Callable[[], Any]) -> float:
    """Median milliseconds of the whole call, rolled back each time."""
    from django.db import transaction

    spent = []
    for _ in range(TIMES):
        with transaction.atomic():
            began = time.perf_counter()
            act()
            spent.append((time.perf_counter() - began) * 1000)
            transaction.set_rollback(True)
    return statistics.median(spent)


def plain(built: Any) -> tuple[float, float]:
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        values = {"project": built.project.pk, "annotator": built.new.pk}
        cursor.execute(f"explain (analyze, buffers, format json) {PLAIN}", values)
        (answer,) = cursor.fetchone()
        transaction.set_rollback(True)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    root = answer[0]["Plan"]
    pages = root["Shared Hit Blocks"] + root["Shared Read Blocks"]
    return pages, answer[0]["Execution Time"]


if __name__ == "__main__":
    main()
