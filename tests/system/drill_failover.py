"""PostgreSQL's machine is lost while sixteen people vote, and its replica takes over.

Two servers of PostgreSQL, the second a streaming replica that the first waits for at every commit
(`synchronous_standby_names`). The site's address names both and asks for the one that writes. The
first is killed with all its processes; after ten seconds the replica is promoted, as an operator or
Patroni would do it. Labeling pauses and continues, and every acknowledged vote must be there once.

Run: python -m tests.system.drill_failover
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from apps.common.embedded.postgres import OWNER, ROLES_SQL, SUPERUSER, program
from tests.system.a_site import (
    Site,
    Visitor,
    Voters,
    free_port,
    kill,
    longest_gap,
    temporary_folder,
    tree,
    wait_for,
)
from tests.system.drill_chaos import launched, run_checked, runs_stopped, votes_checked

PEOPLE, PAIRS = 16, 12_000
BEFORE, AWAY, AFTER = 15.0, 10.0, 20.0  # seconds
MOST_AFTER_PROMOTION = 15.0  # until a vote is acknowledged
STANDBY = "second"
ACCOUNT = {"user": "nobody"} if os.geteuid() == 0 else {}  # PostgreSQL refuses to run as root


class Server:
    """One PostgreSQL in a folder of its own, reached by the loopback."""

    def __init__(self, data: Path) -> None:
        self.data, self.port = data, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, role: str = SUPERUSER, database: str = "concord") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        _run("initdb", "--auth=trust", "-U", SUPERUSER, "-D", str(self.data))

    def copy_of(self, other: "Server") -> None:
        """A replica, by PostgreSQL's own means."""
        target = f"host=127.0.0.1 port={other.port} user={SUPERUSER} application_name={STANDBY}"
        _run(
            "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-d", target, "-D", str(self.data)
        )

    def start(self) -> None:
        words = ["-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        with (self.data.parent / f"{self.data.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(program("postgres")), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **ACCOUNT,
            )
        wait_for(self._answers, 60, f"PostgreSQL in {self.data.name}")

    def kill(self) -> None:
        """With all its processes, as a machine that loses its power."""
        assert self._process is not None
        for pid in tree(self._process.pid):
            kill(pid)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # ends sessions too, ours among them
            self._process.wait(60)

    def promote(self) -> None:
        _run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def say(self, *statements: str, database: str = "concord") -> None:
        with psycopg.connect(self.url(database=database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL in {self.data.name} has ended")
        try:
            psycopg.connect(self.url(database="postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _run(name: str, *words: str) -> None:
    done = subprocess.run([str(program(name)), *words], capture_output=True, check=False, **ACCOUNT)
    if done.returncode:
        sys.exit(f"{name} failed: {done.stderr.decode(errors='replace')[-2000:]}")


def both(first: Server, second: Server, role: str) -> str:
    """The address of whichever of the two can be written to."""
    return (
        f"postgresql://{role}@/concord?host=127.0.0.1,127.0.0.1"
        f"&port={first.port},{second.port}&target_session_attrs=read-write&connect_timeout=2"
    )


def main() -> None:
    with temporary_folder() as folder:
        folder.chmod(0o711)
        (folder / "databases").mkdir(mode=0o755)
        if ACCOUNT:
            shutil.chown(folder / "databases", ACCOUNT["user"])
        first = Server(folder / "databases" / "first")
        second = Server(folder / "databases" / STANDBY)
        try:
            faults = _played(folder, first, second)
        finally:
            second.stop()
            first.stop()
    print("\n".join(["", *(faults or ["every limit was kept"])]))  # noqa: T201
    sys.exit(bool(faults))


def _played(folder: Path, first: Server, second: Server) -> list[str]:
    first.make()
    first.start()
    first.say("create database concord", database="postgres")
    with psycopg.connect(first.url()) as connection:
        connection.execute(ROLES_SQL.read_bytes())
    second.copy_of(first)
    second.start()
    wait_for(lambda: _streams(first), 30, "the replica to stream")
    first.say(
        f"alter system set synchronous_standby_names = '{STANDBY}'", "select pg_reload_conf()"
    )
    addresses = {
        "DATABASE_URL": both(first, second, "concord"),
        "DATABASE_OWNER_URL": both(first, second, OWNER),
    }
    with Site(folder / "var", addresses | {"DRILL_FOLDER": str(folder)}) as site:
        site.connect()
        faults = _lost(site, folder, first, second)
    if left := site.still_there():
        faults.append(f"left behind: {left}")
    return faults


def _streams(server: Server) -> bool:
    with psycopg.connect(server.url()) as connection:
        row = connection.execute("select count(*) from pg_stat_replication").fetchone()
    return bool(row and row[0])


def _lost(site: Site, folder: Path, first: Server, second: Server) -> list[str]:
    from benchmarks.load import projects

    made = projects.project_make("drill", pairs=PAIRS, annotators=PEOPLE)
    run = launched(made.project, folder, 1)
    with (
        Voters(site.url, "drill", projects.tokens(made.annotators)) as voters,
        Visitor(site.url) as visitor,
    ):
        wait_for(lambda: _step(run) > 20, 120, "the run's first steps")
        time.sleep(BEFORE)
        before = len(voters.acknowledged)
        killed = time.monotonic()
        first.kill()
        time.sleep(AWAY)
        promoted = time.monotonic()
        second.promote()
        wait_for(
            lambda: voters.acknowledged[-1][0] > promoted,
            60,
            "a vote after the promotion",
        )
        again = next(at for at, _ in voters.acknowledged if at > promoted) - promoted
        well = site.wait_until_well(120)
        time.sleep(AFTER)
        ended = time.monotonic()
    gap = longest_gap([at for at, _ in voters.acknowledged], killed, ended)
    pages = longest_gap(visitor.answered, killed, ended)
    print(  # noqa: T201
        f"the first server killed after {before:,} votes, its replica promoted {AWAY:.0f} s later\n"
        f"votes again {again:.1f} s after that (away for {gap:.1f} s in all), pages away for "
        f"{pages:.1f} s, every part well {well:.1f} s after the first vote"
    )
    faults = votes_checked(made.project, voters)
    faults += [*runs_stopped([run]), *run_checked(run, 1, folder)]
    if again > MOST_AFTER_PROMOTION:
        faults.append(f"no vote for {again:.1f} s after the promotion")
    return faults


def _step(run: Any) -> int:
    run.refresh_from_db(fields=["step"])
    return run.step


if __name__ == "__main__":
    main()
