"""Every part of a site is killed, stopped, cut off or out of disk by a seeded schedule, under load.

32 people vote by API, four write prompts that one more reviews, somebody opens pages, files are
imported, datasets frozen, and two runs train on three workers. Afterwards the votes and texts that
were acknowledged, the steps of the runs, the rows of the files, datasets, checkpoints and the audit
log are compared with what they must be; how long each part took to be well again is printed. Ends
with 1 where anything is wrong.

Run: python -m tests.system.drill_chaos [--seconds 300] [--seed 1] [--people 32] [--only PART …]

Where nobody may mount a file system, disks are not filled, which is said.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.report import print_report
from tests.system import checks
from tests.system.a_site import (
    Asking,
    Site,
    Visitor,
    Voters,
    as_json,
    longest_gap,
    temporary_folder,
)
from tests.system.faults import (
    FAULTS,
    LEASE_SECONDS,
    ON_DISKS,
    Fault,
    may_mount,
    schedule,
    small_disk,
)
from tests.system.writers import Writers

PEOPLE, PAUSE = 32, 1.0  # seconds between two votes of one of them
WRITERS, TEXTS = 4, 5_000  # beside them, and what they find to write
ROWS = 40  # of each file
MOST_WELL = 90.0  # seconds until every part is well again
RESTS = (1.0, 4.0)  # seconds between two faults
STARTS = 1.5  # as long as a start of the site, pages may be away after a killed supervisor
STEP_SECONDS = 0.1
DATABASE_MB, FILES_MB = 1_500, 400
SEED_OF_RUNS = 3
ENVIRONMENT = {
    "RUN_LEASE_SECONDS": str(LEASE_SECONDS),
    "RUN_SILENCE_SECONDS": "12",
    "RUN_MAX_ATTEMPTS": "20",
    "RUN_RETRY_SECONDS": "2",
}
WATCHED = ("events", "default", "imports", "statistics", "cpu", "short", "scheduler")


@dataclass(slots=True)
class Outcome:
    fault: Fault
    well_after: float  # seconds since the fault was over
    pages_away: float
    votes_away: float
    errors: Counter[str]  # answers of 5xx meanwhile, by status and code
    attempts: int  # that the runs began meanwhile
    taken_over: bool  # one of them before the fault was over
    missing: str = ""  # what was not well in the end


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="longer until each part had it"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--only", nargs="*", default=[], help="names of parts")
    chosen = parser.parse_args(arguments)
    faults = (*FAULTS, *(ON_DISKS if may_mount() else ()))
    if not may_mount():
        say("disks are not filled: a small file system can only be mounted as root")
    faults = tuple(one for one in faults if not chosen.only or one.part in chosen.only)
    outcomes: list[Outcome] = []
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder())
        # Both servers' state on one small disk, attempts and artifacts on another.
        var = opened.enter_context(small_disk(folder / "state", DATABASE_MB)) / "var"
        files = opened.enter_context(small_disk(folder / "files", FILES_MB))
        environment = ENVIRONMENT | {
            "ARTIFACTS_URL": str(files / "artifacts"),
            "WORK_DIR": str(files / "work"),
            "DRILL_FOLDER": str(folder),
        }
        with Site(var, environment, workers=2) as site:
            site.connect()
            say(f"the site started in {site.started_in:.1f} s")
            wrong, figures = disturbed(site, folder, faults, chosen, outcomes)
        if left := site.still_there():
            wrong.append(f"left behind: {left}")
    print_report("chaos", table(outcomes), figures | {"seed": chosen.seed, "wrong": wrong})
    print("\n".join(["", *(wrong or ["nothing was lost, doubled or half-written"])]))  # noqa: T201
    sys.exit(bool(wrong))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


# --- the load ------------------------------------------------------------------------------------


class Engineer(Asking):
    """Imports files and freezes datasets, one after the other, and starts again what failed."""

    def __init__(self, url: str, project: Any, user: Any, token: str) -> None:
        super().__init__(url, project.slug)
        self._project, self._user, self._token = project, user, token
        self.words: Counter[str] = Counter()  # what was said of imports and freezes that failed
        self.begun = self.imported = 0  # freezes by API, imports

    async def _all(self) -> None:
        async with self.session(self._token) as session:
            number = 0
            while not self._stopping:
                number += 1
                await self._import(session, number)
                await asyncio.sleep(3)
                await self._freeze(session, number)
                await asyncio.sleep(3)

    async def _import(self, session: aiohttp.ClientSession, number: int) -> None:
        rows = "".join(json.dumps(row) + "\n" for row in file_rows(number)).encode()

        def form() -> dict[str, Any]:
            data = aiohttp.FormData()
            data.add_field("file", rows, filename=f"file-{number}.jsonl")
            return {"data": data}

        job = await self.until(session, "POST", "imports", form)
        if job is None:
            return
        for stage in ("check", "start"):
            while True:
                await self.until(session, "POST", f"imports/{job['id']}/{stage}", as_json({}))
                found = await self._ended(session, job["id"])
                if found is None:
                    return
                if found["state"] == "done":
                    break
                self.words[f"import {found['state']}: {found['error'][:160]}"] += 1
                if self._stopping:
                    return
        self.imported += 1

    async def _ended(self, session: aiohttp.ClientSession, job: str) -> dict[str, Any] | None:
        while True:
            found = await self.until(session, "GET", f"imports/{job}", as_json(None))
            if found is None or found["state"] not in ("queued", "running"):
                return found
            await asyncio.sleep(0.5)

    async def _freeze(self, session: aiohttp.ClientSession, number: int) -> None:
        """By turns by API and in this process, each made by the imports worker; one that fails does
        so with the reason in its row."""
        if number % 2:
            body = {"name": f"frozen {number}", "kind": "preferences"}
            status, said = await self.ask(session, "POST", "snapshots", as_json(body))
            self.begun += status == 202
            if status not in (0, 202):
                self.words[f"freeze {status}: {str(said.get('message'))[:160]}"] += 1
            return
        try:
            await asyncio.to_thread(self._start_freeze, f"frozen {number}")
        except Exception as error:  # whatever keeps it from the database
            self.words[f"freeze not begun: {type(error).__name__}"] += 1

    def _start_freeze(self, name: str) -> None:
        from django.db import connection

        from apps.snapshots.selectors.snapshots import recipe_default
        from apps.snapshots.services.freezing import snapshot_start

        try:
            recipe = recipe_default(project=self._project)
            snapshot_start(project=self._project, name=name, recipe=recipe, user=self._user)
        finally:
            connection.close()


def file_rows(number: int) -> list[dict[str, str]]:
    return [
        {
            "id": f"file-{number}-{n}",
            "prompt": f"What speaks for plan {n} of file {number}?",
            "response_a": f"It is cheap: {n} a year.",
            "response_b": f"It is quick: {n} days.",
        }
        for n in range(ROWS)
    ]


@dataclass(slots=True)
class Load:
    """Who does what on the site, and what they were told."""

    site: Site
    project: Any
    runs: list[Any]
    voters: Voters
    visitor: Visitor
    engineer: Engineer
    writers: Writers
    resumed: Counter[str] = field(default_factory=Counter)  # by why the run had failed

    @property
    def errors(self) -> list[tuple[float, int, str]]:
        return sorted([*self.voters.errors, *self.engineer.errors, *self.writers.errors])

    def votes(self, since: float) -> int:
        return sum(at > since for at, _ in self.voters.acknowledged[-200:])

    def progress(self) -> dict[str, tuple[int, int, str]]:
        """(attempt, step, state) by run."""
        from apps.training.models import Run

        rows = Run.objects.filter(pk__in=[run.pk for run in self.runs])
        return {r.pk: (r.attempt, r.step, r.state) for r in rows}

    def resume_failed(self) -> None:
        """A person starts again what has failed for good."""
        from apps.training import services
        from apps.training.models import Run

        for run in Run.objects.filter(pk__in=[run.pk for run in self.runs], state="failed"):
            self.resumed[f"{run.failure_kind}: {run.failure_message[:120]}"] += 1
            services.run_resume(run=run)


def disturbed(
    site: Site,
    folder: Path,
    faults: tuple[Fault, ...],
    chosen: argparse.Namespace,
    outcomes: list[Outcome],
) -> tuple[list[str], dict[str, Any]]:
    """What is wrong after the schedule, and figures of the load."""
    from apps.accounts.models import Role
    from apps.accounts.services import token_create
    from apps.labeling.services.writing import writing_batch_create
    from benchmarks.load import projects
    from tests.people import person_make

    pairs = int(chosen.people / PAUSE * (chosen.seconds + 200) / 3)
    made = projects.project_make("drill", pairs=pairs, annotators=chosen.people + WRITERS)
    emil = person_make("Emil", made.project, Role.ENGINEER)
    writing_batch_create(
        project=made.project,
        by=emil,
        name="under faults",
        kind="prompts",
        n_prompts=TEXTS,
        instruction="A question about a plan.",
    )
    scopes = ["read", "write", "label"]
    token = token_create(user=emil, name="drill", scopes=scopes, days=1)[1]
    runs = [launched(made.project, folder, n) for n in (1, 2)]
    tokens = projects.tokens(made.annotators)
    with (
        Voters(site.url, "drill", tokens[WRITERS:], pause=PAUSE) as voters,
        Visitor(site.url) as visitor,
        Engineer(site.url, made.project, emil, token) as engineer,
        Writers(site.url, "drill", tokens[:WRITERS], token) as writers,
    ):
        load = Load(site, made.project, runs, voters, visitor, engineer, writers)
        missing = wait_until_well(load, time.monotonic(), asked(load.progress) or {}, 180)
        if missing:
            raise RuntimeError(f"the site was not well before anything was done to it: {missing}")
        outcomes += played(load, faults, chosen)
    missing = wait_until_well(load, 0.0, {}, 180, voting=False)
    wrong = [broken for one in outcomes if (broken := limits_broken(one, site))]
    wrong += [f"in the end: {missing}"] if missing else []
    figures = {
        "votes": len(voters.acknowledged),
        "votes acknowledged again": voters.replayed,
        "texts written": len(writers.acknowledged),
        "texts accepted": len(writers.accepted),
        "nothing to write": dict(Counter(writers.nothing)),
        "imports": engineer.imported,
        "freezes begun by API": engineer.begun,
        "said of imports and freezes": dict(engineer.words),
        "runs resumed by a person": dict(load.resumed),
        "answers of 5xx": dict(errors_by_code(load.errors)),
        "refused": dict(Counter(code for _, status, code in load.errors if 400 <= status < 500)),
    }
    wrong += [f"answers of 500: {n} × {code}" for code, n in internal(load.errors).items()]
    return [*wrong, *everything_checked(load, folder, figures)], figures


def launched(project: Any, folder: Path, number: int) -> Any:
    from apps.training import services

    return services.run_launch(
        project=project,
        kind="drill",
        name=f"run {number}",
        config={
            "steps": 1_000_000,
            "step_seconds": STEP_SECONDS,
            "checkpoint_every": 20,
            "witness": str(folder / f"witness-{number}.jsonl"),
        },
        inputs={},
        seed=SEED_OF_RUNS,
        queue="cpu",
    )


# --- one fault after the other -------------------------------------------------------------------


def played(load: Load, faults: tuple[Fault, ...], chosen: argparse.Namespace) -> Iterator[Outcome]:
    """Until the time is over and each part has had its turn."""
    draw = random.Random(chosen.seed)
    waiting = {fault.part for fault in faults}
    until = time.monotonic() + chosen.seconds
    for fault in schedule(faults, chosen.seed):
        if time.monotonic() > until and not waiting:
            return
        waiting.discard(fault.part)
        yield one_fault(load, fault, draw)
        time.sleep(draw.uniform(*RESTS))


def one_fault(load: Load, fault: Fault, draw: random.Random) -> Outcome:
    asked(load.resume_failed)
    first = asked(load.progress) or {}
    began = time.monotonic()
    try:
        fault.do(load.site, draw)
        failed = ""
    except Exception as error:  # the others' turns are worth having
        failed = f"it could not be done: {type(error).__name__}: {error}"
    over = time.monotonic()
    before = asked(load.progress) or {}
    most = MOST_WELL + (fault.away or load.site.started_in)
    missing = failed or wait_until_well(load, over, before, most)
    well_at = time.monotonic()
    last = asked(load.progress) or {}
    time.sleep(0.5)
    outcome = Outcome(
        fault,
        well_at - over,
        longest_gap(load.visitor.answered, began, well_at),
        longest_gap([at for at, _ in load.voters.acknowledged], began, well_at),
        errors_by_code([one for one in load.errors if one[0] >= began]),
        _begun(first, last),
        _begun(first, before) > 0,
        missing,
    )
    say(
        f"{fault.part}, {fault.how}: well {outcome.well_after:.1f} s after, pages away"
        f" {outcome.pages_away:.1f} s, votes {outcome.votes_away:.1f} s, {dict(outcome.errors)}"
        f" {missing}"
    )
    return outcome


def _begun(before: dict[str, tuple[int, int, str]], after: dict[str, tuple[int, int, str]]) -> int:
    return sum(after[run][0] - before[run][0] for run in before.keys() & after.keys())


def wait_until_well(
    load: Load,
    since: float,
    before: dict[str, tuple[int, int, str]],
    seconds: float,
    *,
    voting: bool = True,
) -> str:
    """What is still not well after `seconds`; nothing as soon as everything is."""
    until = time.monotonic() + seconds
    while True:
        missing = not_well(load, since, before, voting=voting)
        if not missing or time.monotonic() > until:
            return missing
        asked(load.resume_failed)
        time.sleep(0.3)


def not_well(
    load: Load, since: float, before: dict[str, tuple[int, int, str]], *, voting: bool
) -> str:
    """The first thing that does not work; empty where all does: pages, votes, event streams, a sign
    of life by a live process for every queue and the scheduler, and both runs at a step that they
    had not reached."""
    if voting and not load.votes(since):
        return "nobody's vote was acknowledged"
    if voting and (not load.visitor.answered or load.visitor.answered[-1] < since):
        return "no page was answered"
    if not streams_answer(load.site):
        return "event streams do not answer"
    if not load.site.is_well():
        return "the site does not say that it is well"
    if silent := silent_parts(load.site):
        return f"no sign of life: {silent}"
    now = asked(load.progress)
    if now is None:
        return "the database does not answer"
    for pk, (attempt, step, state) in now.items():
        if state != "running" or (attempt, step) == before.get(pk, (0, 0))[:2] or not step:
            return f"run {pk} is {state} at step {step} of attempt {attempt}"
    return ""


def streams_answer(site: Site) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{site.port + 1}/", timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True


def silent_parts(site: Site) -> str:
    """Names whose newest sign of life is of a process that has ended, or that have none."""
    from redis import RedisError

    from apps.common.redis_now import redis_now
    from tests.workers.supervised import state_of
    from workers.contract import asking, scores
    from workers.contract.wire import alive_key

    watched = (*WATCHED, scores.CHANNEL.sign, asking.CHANNEL.sign)
    try:
        with redis_now(decode_responses=True) as client:
            signs = client.mget([alive_key(name) for name in watched])
    except (RedisError, OSError):
        return "Redis"
    return ", ".join(
        name
        for name, sign in zip(watched, signs, strict=True)
        if not sign or state_of(int(sign.rpartition(":")[2])) in (None, "Z")
    )


def asked(question: Callable[[], Any]) -> Any:
    """The answer, or None while the database or the broker is away."""
    from django.db import Error, connection
    from redis import RedisError

    try:
        return question()
    except (Error, RedisError, OSError):
        connection.close()
        return None


def errors_by_code(errors: list[tuple[float, int, str]]) -> Counter[str]:
    return Counter(f"{status} {code}" for _, status, code in errors if status >= 500)


def internal(errors: list[tuple[float, int, str]]) -> Counter[str]:
    """Errors of our own: what is away or full is a 503 that says so."""
    return Counter(code for _, status, code in errors if status >= 500 and status != 503)


def limits_broken(outcome: Outcome, site: Site) -> str:
    fault = outcome.fault
    away = STARTS * site.started_in if fault.away is None else fault.away
    name = f"{fault.part}, {fault.how}"
    if outcome.missing:
        return f"{name}: not well {outcome.well_after:.0f} s after: {outcome.missing}"
    if fault.takes_over and not outcome.taken_over:
        return f"{name}: no other worker took its run over"
    longest = max(outcome.pages_away, outcome.votes_away)
    return f"{name}: nobody was answered for {longest:.0f} s of {away:.0f}" * (longest > away)


def table(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    rows = []
    for part, how in sorted({(one.fault.part, one.fault.how) for one in outcomes}):
        of = [one for one in outcomes if (one.fault.part, one.fault.how) == (part, how)]
        rows.append(
            {
                "part": part,
                "fault": how,
                "n": len(of),
                "well s, median": f"{statistics.median(one.well_after for one in of):.1f}",
                "worst": f"{max(one.well_after for one in of):.1f}",
                "pages away s": f"{max(one.pages_away for one in of):.1f}",
                "votes away s": f"{max(one.votes_away for one in of):.1f}",
                "attempts": sum(one.attempts for one in of),
                "5xx": sum(sum(one.errors.values()) for one in of),
            }
        )
    return rows


# --- what must hold afterwards -------------------------------------------------------------------


def everything_checked(load: Load, folder: Path, figures: dict[str, Any]) -> list[str]:
    from django.db import connection

    from apps.accounts.services.audit_chain import audit_verify

    connection.close()
    stopped = runs_stopped(load.runs)
    work_ended(load)
    audit = audit_verify()
    return [
        *stopped,
        *votes_checked(load.project, load.voters),
        *texts_checked(load.project, load.writers),
        *(wrong for n, run in enumerate(load.runs, 1) for wrong in run_checked(run, n, folder)),
        *imports_checked(load, figures),
        *datasets_checked(load, figures),
        *(f"audit log, event {one.event}: {one.what}" for one in audit.broken),
    ]


def runs_stopped(runs: list[Any]) -> list[str]:
    """Each is asked to save and finish, and does."""
    from apps.training import services
    from apps.training.models import Run

    for run in runs:
        services.run_stop_and_keep(run=Run.objects.get(pk=run.pk))
    until = time.monotonic() + 90
    while True:
        states = {run.name: Run.objects.get(pk=run.pk).state for run in runs}
        wrong = checks.unfinished("runs", states, {"finished"})
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(0.5)


def work_ended(load: Load) -> None:
    """Waits until no file is brought in and no dataset made; what hangs is named afterwards."""
    from apps.labeling.models import ImportJob
    from apps.snapshots.models import Snapshot

    until = time.monotonic() + MOST_WELL
    jobs = ImportJob.objects.filter(project=load.project, state__in=["queued", "running"])
    drafts = Snapshot.objects.filter(project=load.project, state="draft")
    while (jobs.exists() or drafts.exists()) and time.monotonic() < until:
        time.sleep(0.5)


def votes_checked(project: Any, voters: Voters) -> list[str]:
    from django.db import connection

    from apps.labeling.models import Vote

    connection.close()  # the server may have restarted since it was opened
    rows = Vote.objects.filter(project=project, is_current=True)
    fields = ("pk", "slot_id", "annotator_id", "comparison_id")
    stored = [checks.StoredVote(*row) for row in rows.values_list(*fields)]
    say(f"votes: {len(voters.acknowledged):,} acknowledged, {voters.replayed} of them again")
    return checks.vote_faults([vote for _, vote in voters.acknowledged], stored)


def texts_checked(project: Any, writers: Writers) -> list[str]:
    from apps.labeling.models import WrittenText, WrittenVersion

    versions = WrittenVersion.objects.filter(project=project)
    stored = [
        checks.StoredText(*row)
        for row in versions.values_list("text", "number", "body", "verdict", "text__made_prompt")
    ]
    say(f"texts: {len(writers.acknowledged):,} acknowledged, {writers.replayed} of them again")
    left = WrittenText.objects.filter(project=project, state="waiting").count()
    say(f"texts: {len(writers.accepted):,} accepted, {left} wait")
    nothing = [] if writers.acknowledged and writers.accepted else ["nobody wrote or reviewed"]
    return nothing + checks.text_faults(writers.acknowledged, writers.accepted, stored)


def run_checked(run: Any, number: int, folder: Path) -> list[str]:
    """Its steps, its trainers, and its checkpoints: each that is shown is whole."""
    from django.conf import settings

    from apps.training import selectors
    from apps.training.selectors.runs import checkpoints
    from tests.training.reports import points_said, points_stored, undisturbed
    from tests.training.stack import witnessed
    from workers.artifacts import ArtifactError, Store

    name, wrong, store = f"run {number}", [], Store(settings.ARTIFACTS_URL)
    columns = selectors.metric_columns(run=run, names=["drill/value"])
    points = columns["drill/value"].points()
    wrong += checks.step_faults(name, points, undisturbed(SEED_OF_RUNS, len(points)))
    wrong += checks.witness_faults(name, witnessed(folder / f"witness-{number}.jsonl"))
    # Reading shows a step once; whether its event was counted twice is seen beside what was said.
    for n in run.attempts.values_list("number", flat=True):
        spool = f"runs/{run.pk}/attempt-{n}/events.jsonl"
        said = points_said(whole_lines(store.read_bytes(spool))) if store.exists(spool) else None
        wrong += checks.attempt_faults(f"{name}/{n}", said, points_stored(run, attempt=n))
    for one in checkpoints(run):
        if one.files_removed_at is not None:
            continue
        try:
            store.get_tree(one.uri, sha256=one.sha256, cache=folder)
        except ArtifactError as error:
            wrong.append(f"{name}: checkpoint of step {one.step}: {error}")
    say(f"{name}: {len(points)} steps in {run.attempts.count()} attempts")
    return wrong


def whole_lines(spool: bytes) -> list[dict[str, Any]]:
    """What can be read of a file whose writer may have been killed, or had no room, in a line."""
    found = []
    for line in spool.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def imports_checked(load: Load, figures: dict[str, Any]) -> list[str]:
    from apps.labeling.models import ImportJob, Task
    from apps.labeling.services.imports import batch_of

    jobs = list(ImportJob.objects.filter(project=load.project))
    figures["imports by state"] = dict(Counter(f"{job.stage} {job.state}" for job in jobs))
    found = [
        checks.Import(
            job.pk,
            job.state if job.stage == "import" else "not begun",
            ROWS,
            Task.objects.filter(project=load.project, batch=batch_of(job)).count(),
        )
        for job in jobs
    ]
    rest = {"draft", "done", "failed", "interrupted", "cancelled"}
    states = {job.pk: job.state for job in jobs}
    return checks.import_faults(found) + checks.unfinished("imports", states, rest)


def datasets_checked(load: Load, figures: dict[str, Any]) -> list[str]:
    from apps.snapshots.models import Snapshot
    from apps.snapshots.services.freezing import snapshot_verify

    found = list(Snapshot.objects.filter(project=load.project))
    figures["datasets by state"] = dict(Counter(one.state for one in found))
    figures["why datasets failed"] = dict(Counter(one.error[:160] for one in found if one.error))
    verified = [(one, snapshot_verify(snapshot=one)) for one in found if one.state == "frozen"]
    states = {one.name: one.state for one in found}
    return [
        *(f"dataset {one.name}: {said.problem}" for one, said in verified if not said.ok),
        *checks.unfinished("datasets", states, {"frozen", "failed"}),
    ]


if __name__ == "__main__":
    main()
