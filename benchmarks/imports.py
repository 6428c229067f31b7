"""Comparisons a second: the import alone, with every scan, from a JSON Lines file; beside the ORM.

10,000 comparisons of about 1.1 kB, each with a prompt of its own, two answers and three slots.
"load" checks every field, hashes, finds repeats and writes by COPY; "all scans" also looks for
model names, personal data and five constraint phrases; "file" reads JSON Lines before that.
The named alternative writes the same rows with Django's `bulk_create`, without any check. All in
one process on the same PostgreSQL, best of three. CPU seconds are this process's and, beside them,
those of the database's process: on a busy machine they say more than the wall clock.

Label Studio's import of as many rows was measured elsewhere at 1,700 rows a second, on its own
PostgreSQL; it is quoted, not run.

Run: make bench B=imports
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

ROWS = 10_000
VOTES_EACH = 5
STEPPED = 1_500  # votes through the steps of the screen, beside which the import's are seen
TIMES = 3
LABEL_STUDIO_ROWS_PER_SECOND = 1700  # quoted: measured elsewhere
PHRASES = ["I love you", "as your lawyer", "guaranteed profit", "kill yourself", "secret recipe"]
_WORDS = (
    "tap water costs less than what comes in plastic bottles and the council has to pay for waste "
    "people who travel need something to drink when they are away from home or at work which is "
    "why open questions remain in 2023 about health price and the time that recycling takes"
)


def rows_make(n: int, seed: int = 1) -> list[dict[str, Any]]:
    """Rows with texts of 80 to 110 words; no two are alike."""
    draw = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(draw.choices(_WORDS.split(), k=words)).capitalize() + "."

    return [
        {
            "id": f"pair-{number}",
            "prompt": f"Question {number}: {text(14)}",
            "response_a": f"Yes, says answer {number}. {text(draw.randint(75, 105))}",
            "response_b": f"No, says answer {number}. {text(draw.randint(75, 105))}",
        }
        for number in range(n)
    ]


def clean() -> None:
    from apps.labeling.models import Comparison, Decision, Prompt, Response, Slot, Vote

    for model in (Vote, Decision, Slot, Comparison, Response, Prompt):
        model.objects.all()._raw_delete("default")


def best(work: Callable[[], int]) -> dict[str, float]:
    """Rows a second, wall and CPU, of the fastest of three runs on empty tables."""
    walls, cpus, theirs = [], [], []
    for _ in range(TIMES):
        clean()
        wall, cpu, other = time.perf_counter(), time.process_time(), database_cpu()
        n = work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        theirs.append(database_cpu() - other)
        assert n == ROWS, n
    return {
        "rows_per_second": ROWS / min(walls),
        "seconds": min(walls),
        "cpu_seconds": min(cpus),
        "database_cpu_seconds": min(theirs),
    }


def database_cpu() -> float:
    """CPU seconds so far of the database process that serves this connection (Linux; else 0)."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        path = Path(f"/proc/{cursor.fetchone()[0]}/stat")
    if not path.exists():
        return 0.0
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_bulk_create(project: Any, rows: list[dict[str, Any]]) -> int:
    """What one would write first, with nothing checked and nothing hashed."""
    from django.db import transaction

    from apps.labeling.models import Comparison, Prompt, Response, Slot

    def said(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    with transaction.atomic():
        prompts = Prompt.objects.bulk_create(
            [
                Prompt(
                    project=project,
                    messages=said("user", row["prompt"]),
                    text_hash=row["id"],
                    group_key=row["id"],
                )
                for row in rows
            ]
        )
        answers = [
            Response.objects.bulk_create(
                [
                    Response(
                        prompt=prompt,
                        messages=said("assistant", row[f"response_{side}"]),
                        text_hash=f"{row['id']}{side}",
                    )
                    for prompt, row in zip(prompts, rows, strict=True)
                ]
            )
            for side in "ab"
        ]
        made = Comparison.objects.bulk_create(
            [
                Comparison(
                    project=project,
                    prompt=prompt,
                    response_a=a,
                    response_b=b,
                    external_id=row["id"],
                    shuffle=random.random(),
                )
                for prompt, a, b, row in zip(prompts, *answers, rows, strict=True)
            ]
        )
        Slot.objects.bulk_create(
            [
                Slot(project=project, task=c, position=p, shuffle=c.shuffle)
                for c in made
                for p in (1, 2, 3)
            ]
        )
    return len(made)


def votes_imported(project: Any, rows: list[dict[str, Any]]) -> float:
    """Past votes a second: each with its slot, the comparisons counted and decided."""
    from apps.labeling import services

    votes = [
        {"comparison": row["id"], "annotator": f"worker-{n % 40}", "choice": "ab"[n % 3 == 0]}
        for place, row in enumerate(rows)
        for n in range(place, place + VOTES_EACH)
    ]
    report = services.votes_import(project=project, rows=votes, make_room=True)
    assert report.n_created == len(votes), report
    return len(votes) / report.seconds


def votes_stepped(project: Any, rows: list[dict[str, Any]]) -> float:
    """The same, one vote at a time through the steps of the label screen."""
    from apps.accounts.models import Membership, User
    from apps.labeling import services
    from apps.labeling.models import Comparison

    people = [User.objects.create(username=f"stepped-{n}") for n in range(3)]
    for person in people:
        Membership.objects.create(project=project, user=person, role="annotator")
    pairs = list(Comparison.objects.filter(project=project)[: STEPPED // 3])
    started = time.perf_counter()
    for pair in pairs:
        for person in people:
            slot = services.slot_lease_for(comparison=pair, annotator=person)
            services.vote_cast(
                slot=slot,
                annotator=person,
                idempotency_key=f"{slot}",
                choice="a",
                lease_next=False,
            )
    return STEPPED / (time.perf_counter() - started)


def from_file(project: Any, path: Path) -> int:
    from apps.labeling import services
    from apps.labeling.services.importing import file_rows
    from apps.labeling.services.imports import file_parsed

    with file_parsed(path, {}) as values:
        rows = file_rows(values).comparisons
    return services.comparisons_import(project=project, rows=rows).n_created


def main() -> None:
    with site() as folder:
        from apps.accounts.models import Project
        from apps.labeling import services
        from apps.labeling.models import LabelingSettings

        project = Project.objects.create(slug="imports", name="Imports")
        services.labeling_set_up(project=project)
        rows = rows_make(ROWS)
        path = folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        bare = services.Scans(model_names=False, personal=False)

        def load(scans: services.Scans | None = None) -> int:
            return services.comparisons_import(project=project, rows=rows, scans=scans).n_created

        alone = best(lambda: load(bare))
        LabelingSettings.objects.filter(project=project).update(constraint_phrases=PHRASES)
        scanned = best(load)
        file = best(lambda: from_file(project, path))
        orm = best(lambda: by_bulk_create(project, rows))
        stepped = votes_stepped(project, rows)
        votes = []
        for _ in range(TIMES):
            clean()
            load(bare)
            votes.append(votes_imported(project, rows))

    print_report(
        f"Import of {ROWS:,} comparisons, one process",
        [
            {
                "path": name,
                "rows/s": round(f["rows_per_second"]),
                "seconds": round(f["seconds"], 2),
                "CPU s here": round(f["cpu_seconds"], 2),
                "CPU s database": round(f["database_cpu_seconds"], 2),
            }
            for name, f in (
                ("load alone", alone),
                ("with all scans", scanned),
                ("JSON Lines file, all scans", file),
                ("bulk_create, unchecked", orm),
            )
        ]
        + [
            {"path": "Label Studio (quoted)", "rows/s": LABEL_STUDIO_ROWS_PER_SECOND},
            {"path": f"{ROWS * VOTES_EACH:,} past votes", "rows/s": round(max(votes))},
            {"path": "votes, one at a time", "rows/s": round(stepped)},
        ],
        {
            "rows": ROWS,
            "bytes_per_row": round(path_size(rows) / ROWS),
            "load_rows_per_second": round(alone["rows_per_second"]),
            "scanned_rows_per_second": round(scanned["rows_per_second"]),
            "file_rows_per_second": round(file["rows_per_second"]),
            "cpu_seconds": {
                name: [round(f["cpu_seconds"], 2), round(f["database_cpu_seconds"], 2)]
                for name, f in (("load", alone), ("scanned", scanned), ("bulk_create", orm))
            },
            "alternative": "Django bulk_create of the same rows without any check, same run",
            "alternative_rows_per_second": round(orm["rows_per_second"]),
            "ratio": round(alone["rows_per_second"] / orm["rows_per_second"], 2),
            "votes_per_second": round(max(votes)),
            "votes_one_at_a_time_per_second": round(stepped),
            "votes_ratio": round(max(votes) / stepped, 1),
            "quoted": {"label_studio_rows_per_second": LABEL_STUDIO_ROWS_PER_SECOND},
            "versions": versions("django", "psycopg"),
        },
    )


def path_size(rows: list[dict[str, Any]]) -> int:
    """Bytes of the rows as JSON Lines."""
    return sum(len(json.dumps(row)) + 1 for row in rows)


if __name__ == "__main__":
    main()
