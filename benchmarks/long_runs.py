"""Two runs of 300 steps with results of 200 kB each beside the same runs with short results.

Through the pages: the file is uploaded, checked and imported, the pair is shown to an annotator,
folded results are opened, the vote is cast, and the runs are downloaded and frozen. The alternative
is the same with results of 200 characters, in the same run: what long results cost beyond that is
what storing them apart should keep small. The WSGI application runs in this process; readers of
files are processes of their own, as always.

Not in here: the HTTP server with its sockets, and the browser.

Run: python -m benchmarks.long_runs [--steps 300] [--size 200000]
"""

import argparse
import json
import random
import re
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import print_report, versions
from benchmarks.site import site

TIMES = 9
FIELDS = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--size", type=int, default=200_000)
    asked = arguments.parse_args()
    rows = []
    with site() as folder:
        for name, size in (("short", 200), ("long", asked.size)):
            path = folder / f"{name}.jsonl"
            path.write_text(json.dumps(pair_of(asked.steps, size)) + "\n")
            rows.append({"results": name} | measured(name, path, asked.steps))
    short, long = rows
    ratios = {
        name: round(long[name] / short[name], 2)
        for name in ("page_ms", "vote_ms", "list_ms", "check_s", "import_s", "export_s", "freeze_s")
    }
    print_report(
        "Two long runs of an agent, with long and with short results of tools",
        rows,
        {
            "rows": rows,
            "long_to_short": ratios,
            "steps": asked.steps,
            "size": asked.size,
            "versions": versions("django", "psycopg"),
        },
    )


def pair_of(steps: int, size: int) -> dict[str, Any]:
    """Half of the steps are the same in both runs. What the tool reads is the source of Python's
    standard library, from a different place each time."""
    library = Path(json.__file__).parent.parent
    sources = sorted(library.glob("*.py")) + sorted(library.glob("*/*.py"))
    text = "".join(one.read_text("utf-8", "replace") for one in sources).replace("\x00", "")

    def run(side: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for n in range(steps):
            who = "both" if n % 2 else side
            call = {"type": "function", "function": {"name": "read", "arguments": {who: n}}}
            start = random.Random(f"{who}{n}").randrange(len(text) - size)
            made += [
                {"role": "assistant", "content": f"I read file {n}.", "tool_calls": [call]},
                {"role": "tool", "content": text[start : start + size]},
            ]
        return [*made, {"role": "assistant", "content": f"Done by {side}."}]

    return {"id": "pair", "prompt": "Read them.", "response_a": run("a"), "response_b": run("b")}


def measured(name: str, path: Path, steps: int) -> dict[str, Any]:
    from django.test import Client

    from apps.accounts.models import Membership, Project, User
    from apps.labeling import services
    from apps.labeling.models import LabelingSettings
    from apps.snapshots.recipe import SnapshotRecipe
    from apps.snapshots.services.freezing import snapshot_freeze

    project = Project.objects.create(slug=f"runs-{name}", name=f"Runs {name}")
    people = {}
    for role in ("annotator", "admin"):
        people[role] = User.objects.create_user(f"{role}-{name}")
        Membership.objects.create(project=project, user=people[role], role=role)
    LabelingSettings.objects.create(
        project=project,
        overlap=1,
        least_votes=1,
        least_agreeing=1,
        acknowledge_guidelines=False,
        ask_steps=True,
    )
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        job, upload_s = timed(
            lambda: services.import_job_create(
                project=project, by=people["admin"], file_name=path.name, chunks=chunks
            )
        )

    def work() -> None:
        services.import_job_run(job=job.pk)
        job.refresh_from_db()

    services.import_job_check(job=job)
    _, check_s = timed(work)
    services.import_job_start(job=job, on_error="refuse")
    _, import_s = timed(work)
    if job.state != "done":
        raise RuntimeError(f"the import is {job.state}: {job.error}")

    client = Client(headers={"host": "localhost"})
    client.force_login(people["annotator"])
    root = f"/p/{project.slug}/label/"
    first, first_s = timed(lambda: client.get(root))
    page = first.content.decode()
    if page.count("data-step=") != 2 * (steps + 1) + 1:
        raise RuntimeError("the page has not all steps")
    shown = [timed(lambda: client.get(root))[1] for _ in range(TIMES)]
    parts = re.findall(r'hx-get="([^"]+)" hx-target="this"', page)
    opened = [timed(lambda one=one: client.get(one))[1] for one in parts[:TIMES]]
    sent = dict(FIELDS.findall(page)) | {"answer": "left", "first-error-left": "3"}
    answer, vote_s = timed(lambda: client.post(f"{root}vote/", sent))
    if answer.status_code not in (200, 302):
        raise RuntimeError(f"the vote was answered with {answer.status_code}")
    client.force_login(people["admin"])
    listed = [timed(lambda: client.get(f"/p/{project.slug}/comparisons/"))[1] for _ in range(TIMES)]
    export, export_s = timed(
        lambda: b"".join(
            client.get(f"/p/{project.slug}/comparisons/trajectories/").streaming_content
        )
    )
    recipe = SnapshotRecipe(least_votes=1, least_agreeing=1, splits={"train": 1.0}, seed="seed")
    _, freeze_s = timed(
        lambda: snapshot_freeze(project=project, name="runs", recipe=recipe, user=people["admin"])
    )
    own, readers = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "page_kb": round(len(page) / 1e3),
        "first_page_ms": round(first_s * 1e3),
        "page_ms": round(statistics.median(shown) * 1e3),
        "open_ms": round(statistics.median(opened) * 1e3) if opened else None,
        "vote_ms": round(vote_s * 1e3),
        "list_ms": round(statistics.median(listed) * 1e3),
        "upload_s": round(upload_s, 2),
        "check_s": round(check_s, 2),
        "import_s": round(import_s, 2),
        "export_s": round(export_s, 2),
        "export_mb": round(len(export) / 1e6, 1),
        "freeze_s": round(freeze_s, 2),
        "peak_mb": round(own),
        "reader_mb": round(readers),
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


if __name__ == "__main__":
    main()
