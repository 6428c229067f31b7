"""Every part of a site is killed, stopped or starved of disk while sixteen people vote.

For each: for how long no page was answered, and no vote acknowledged; when every part was well
again; how many acknowledged votes are gone or stored twice, and how many steps of a run. A killed
supervisor may take pages away for `STARTS` times as long as this machine starts the site while
nobody votes, which is measured first.

Run: python -m tests.system.drill_kills [--seconds 25] [--only NAME …]
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.system.a_site import (
    Site,
    Visitor,
    Voters,
    kill,
    longest_gap,
    one_of,
    temporary_folder,
    wait_for,
)

PEOPLE, PAIRS = 16, 12_000
MOST_WELL = 30.0  # seconds until every part is well again
STARTS = 1.5
STOPPED_SECONDS, FULL_SECONDS = 8.0, 45.0
DISK_MB = 420


@dataclass(frozen=True, slots=True)
class Drill:
    """What is done to the site, and for how long pages may be away afterwards (seconds)."""

    name: str
    do: Callable[[Site], None]
    pages_away: float


@dataclass(slots=True)
class Outcome:
    name: str
    pages_away: float
    votes_away: float
    well_after: float
    votes: int
    too_long: bool


def _kill(*words: str, which: int = 0) -> Callable[[Site], None]:
    def do(site: Site) -> None:
        # It may still be coming up from the drill before.
        found = wait_for(lambda: site.processes(*words)[which:], 60, " ".join(words))
        kill(found[0])

    return do


def _kill_web_worker(site: Site) -> None:
    servers = site.processes("config.web")
    below = [pid for pid in servers if _parent(pid) in servers]
    kill(one_of(below, "a web worker"))


def _kill_backend(site: Site) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "select pid from pg_stat_activity where datname = current_database() and"
            " backend_type = 'client backend' and pid <> pg_backend_pid() order by state limit 1"
        )
        kill(cursor.fetchone()[0])


def _kill_postgres(site: Site) -> None:
    kill(int((site.var / "postgres" / "postmaster.pid").read_text().split()[0]))


def _redis(site: Site) -> int:
    return int((site.var / "redis" / "redis.pid").read_text())


def _stop_redis(site: Site) -> None:
    pid = _redis(site)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    os.kill(pid, signal.SIGCONT)


def _kill_trainer(site: Site) -> None:
    kill(one_of(site.processes("workers.train", str(site.var)), "a trainer"))


def _kill_supervisor(site: Site) -> None:
    kill(site.pid)


DRILLS = (
    Drill("one web worker", _kill_web_worker, 2),
    Drill("granian", _kill("config.web"), 10),
    Drill("a PostgreSQL backend", _kill_backend, 10),
    Drill("PostgreSQL", _kill_postgres, 10),
    Drill("Redis", lambda site: kill(_redis(site)), 2),
    Drill("Redis stopped for 8 s", _stop_redis, STOPPED_SECONDS + 4),
    Drill("event worker", _kill("celery", "events@"), 2),
    Drill("event worker's pool", _kill("celery", "events@", which=1), 2),
    Drill("trainer", _kill_trainer, 2),
    Drill("training worker", _kill("celery", "train@"), 2),
    Drill("scheduler", _kill("celery", "beat"), 2),
    Drill("supervisor", _kill_supervisor, 0),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=25.0, help="of each drill")
    arguments.add_argument("--only", nargs="*", default=[], help="names of drills")
    chosen = arguments.parse_args()
    drills = [one for one in DRILLS if not chosen.only or one.name in chosen.only]
    faults = []
    with temporary_folder() as folder:
        with Site(folder / "var") as site:
            site.connect()
            away = STARTS * start_seconds(site)
            drills = [
                replace(one, pages_away=away) if one.do is _kill_supervisor else one
                for one in drills
            ]
            faults += played(site, drills, chosen.seconds)
        if left := still_there(site):
            faults.append(f"left behind: {left}")
    if not chosen.only or "a full disk" in chosen.only:
        faults += subprocess_of_the_full_disk(chosen.seconds)
    print("\n".join(["", *(faults or ["every limit was kept"])]))  # noqa: T201
    sys.exit(bool(faults))


def start_seconds(site: Site) -> float:
    """From nothing running to a page, while nobody votes."""
    began = time.monotonic()
    kill(site.pid)
    time.sleep(1)
    with Visitor(site.url) as visitor:
        wait_for(lambda: bool(visitor.answered), 180, "a page after the start")
        seconds = visitor.answered[0] - began
    site.wait_until_well(180)
    print(f"the site started in {seconds:.1f} s")  # noqa: T201
    return seconds


def played(site: Site, drills: list[Drill], seconds: float) -> list[str]:
    from benchmarks.load import projects

    made = projects.project_make("drill", pairs=PAIRS, annotators=PEOPLE)
    run = launched(made.project)
    with Voters(site.url, "drill", projects.tokens(made.annotators)) as voters:
        with Visitor(site.url) as visitor:
            wait_for(lambda: steps_of(run) > 20, 120, "the run's first steps")
            outcomes = [one_drill(site, drill, visitor, voters, seconds) for drill in drills]
        time.sleep(2)
    faults = [f"{one.name}: {one}" for one in outcomes if one.too_long]
    print(table(outcomes))  # noqa: T201
    return faults + votes_checked(made.project, voters) + steps_checked(run)


def one_drill(
    site: Site, drill: Drill, visitor: Visitor, voters: Voters, seconds: float
) -> Outcome:
    from django.db import close_old_connections

    close_old_connections()
    began, before = time.monotonic(), len(voters.acknowledged)
    drill.do(site)
    time.sleep(1)  # the processes below a dead one need a moment to follow it
    well_after = 1 + site.wait_until_well(180)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    until = time.monotonic()
    pages = longest_gap(visitor.answered, began, until)
    votes = longest_gap([at for at, _ in voters.acknowledged], began, until)
    outcome = Outcome(
        drill.name,
        pages,
        votes,
        well_after,
        len(voters.acknowledged) - before,
        too_long=pages > drill.pages_away or well_after > MOST_WELL + drill.pages_away,
    )
    print(f"  {outcome}", file=sys.stderr)  # noqa: T201
    if outcome.too_long:
        print(site.log.read_text(errors="replace")[-6000:], file=sys.stderr)  # noqa: T201
    return outcome


def table(outcomes: list[Outcome]) -> str:
    head = f"{'killed (-9)':<24}{'pages away':>12}{'votes away':>12}{'well after':>12}{'votes':>8}"
    return "\n".join(
        [head]
        + [
            f"{one.name:<24}{one.pages_away:>10.1f} s{one.votes_away:>10.1f} s"
            f"{one.well_after:>10.1f} s{one.votes:>8}"
            for one in outcomes
        ]
    )


# --- votes and steps -----------------------------------------------------------------------------


def votes_checked(project: object, voters: Voters) -> list[str]:
    """Each acknowledged vote is stored, and no slot has two."""
    from django.db import connection

    from apps.labeling.models import Vote

    connection.close()  # the server may have restarted since it was opened
    acknowledged = [vote for _, vote in voters.acknowledged]
    rows = Vote.objects.filter(project=project, is_current=True).values_list("pk", "slot_id")
    stored = dict(rows)
    slots = Counter(stored.values())
    lost = set(acknowledged) - stored.keys()
    doubled = [slot for slot, count in slots.items() if count > 1]
    print(  # noqa: T201
        f"votes: {len(acknowledged):,} acknowledged ({voters.replayed} of them again), "
        f"{len(lost)} lost, {len(doubled)} doubled; answers that were errors: {voters.errors}"
    )
    return [f"lost votes: {sorted(lost)[:9]}"] * bool(lost) + [f"doubled: {doubled[:9]}"] * bool(
        doubled
    )


def launched(project: object) -> object:
    from apps.training import services

    return services.run_launch(
        project=project,
        kind="drill",
        name="a run that is disturbed",
        config={"steps": 1_000_000, "step_seconds": 0.1, "checkpoint_every": 20},
        inputs={},
        seed=3,
        queue="cpu",
    )


def points(run: object) -> list[int]:
    from apps.training import selectors

    columns = selectors.metric_columns(run=run, names=["drill/value"])
    return [step for name in columns for step, _ in columns[name].points()]  # none left out


def steps_of(run: object) -> int:
    return len(points(run))


def steps_checked(run: object) -> list[str]:
    """Every step from the first to the last, once."""
    time.sleep(3)
    steps = points(run)
    lost = set(range(1, max(steps, default=0) + 1)) - set(steps)
    doubled = len(steps) - len(set(steps))
    attempts = run.attempts.count()
    print(f"run: {len(steps)} steps in {attempts} attempts, {len(lost)} lost, {doubled} doubled")  # noqa: T201
    return [f"steps lost {sorted(lost)[:9]}, doubled {doubled}"] * bool(lost or doubled)


# --- a full disk ---------------------------------------------------------------------------------


def subprocess_of_the_full_disk(seconds: float) -> list[str]:
    """In a process of its own: Django is set up for one site."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.system.drill_kills import full_disk as f; f()"],
        check=False,
    )
    return [] if done.returncode == 0 else ["the drill of a full disk failed"]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few hundred megabytes; needs the right to mount one."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk() -> None:
    """Full for 45 s, then well again within 30 s by itself; and it starts again afterwards."""
    if os.geteuid() != 0:
        print("full disk: not run, a small file system can only be mounted as root")  # noqa: T201
        return
    faults = []
    with temporary_folder() as folder, small_disk(folder / "disk") as disk:
        with Site(disk / "var") as site:
            site.connect()
            faults = filled(site, disk)
        with Site(disk / "var") as again:
            print(f"full disk: started again, {again.url} is well")  # noqa: T201
        if left := still_there(again):
            faults.append(f"left behind: {left}")
    print("\n".join(faults))  # noqa: T201
    sys.exit(bool(faults))


def filled(site: Site, disk: Path) -> list[str]:
    from benchmarks.load import projects

    made = projects.project_make("drill", pairs=3_000, annotators=PEOPLE)
    run = launched(made.project)
    with Voters(site.url, "drill", projects.tokens(made.annotators)) as voters:
        wait_for(lambda: steps_of(run) > 20, 120, "the run's first steps")
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * 1_000_000)
                    file.flush()
            except OSError:
                pass
        time.sleep(FULL_SECONDS)
        ballast.unlink()
        freed = time.monotonic()
        well_after = site.wait_until_well(120)
        wait_for(
            lambda: voters.acknowledged and voters.acknowledged[-1][0] > freed, 60, "votes again"
        )
        first = next(at for at, _ in voters.acknowledged if at > freed) - freed
        time.sleep(5)
    servers = [
        command for command in site.left_behind().values() if command.startswith("redis-server")
    ]
    print(  # noqa: T201
        f"full disk for {FULL_SECONDS:.0f} s: votes {first:.1f} s after it was freed, every part "
        f"well after {well_after:.1f} s"
    )
    faults = votes_checked(made.project, voters) + steps_checked(run)
    return (
        faults
        + [f"well only after {well_after:.0f} s"] * (well_after > MOST_WELL)
        + [f"Redis servers: {servers}"] * (len(servers) > 1)
    )


def still_there(site: Site) -> dict[int, str]:
    """What has not ended some time after the site was stopped."""
    deadline = time.monotonic() + 20
    while (left := site.left_behind()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main()
