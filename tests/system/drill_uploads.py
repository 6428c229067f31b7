"""Hostile files by HTTP, while people label on the same web processes.

A site of its own (PostgreSQL, Redis, the web server as `manage.py up` starts it) gets every file of
`tests.labeling.hostile_files`, 150 damaged Parquet files and the encodings and delimiters that once
were errors, through the API. Meanwhile four annotators vote. What was accepted is checked whole
as the imports worker does it. The table says how each upload ended and how long votes took with and
without uploads; the exit status is 1 if an answer was an error of ours, took more than ten seconds,
or a web process died.

Run: python -m tests.system.drill_uploads
"""

import asyncio
import json
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.load.players import ApiPlayer
from benchmarks.load.server import Running, web_server
from benchmarks.site import site

SLUG = "drill"
QUIET_SECONDS = 15.0
MOST_SECONDS = 10.0  # of one upload
VOTERS, PAUSE = 4, 0.2
ENCODINGS = (
    "undefined",
    "idna",
    "punycode",
    "a\0b",
    "unicode_escape",
    "utf-16",
    "utf-32",
    "rot13",
    "\ud800",
)
SETTINGS = (
    *({"encoding": name} for name in ENCODINGS),
    {"container": "csv", "delimiter": "ab"},
    {"container": "csv", "delimiter": "\0"},
    {"constants": {"topic": "a\0b"}},
    {"mapping": {"prompt": "\0"}},
    {"split": "\0"},
)


@dataclass
class Answer:
    name: str
    size: int
    status: int
    code: str
    seconds: float


@dataclass
class Votes:
    """Seconds of each vote; `refused` counts those that were not stored."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    stop: bool = False

    def quantile(self, percent: int) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def main() -> int:
    port = _free_port()
    with site(port=port) as var:
        from benchmarks.load.projects import project_make, tokens

        played = project_make(SLUG, pairs=2_000, annotators=VOTERS)
        people = [
            (user.username, token)
            for user, token in zip(played.annotators, tokens(played.annotators), strict=True)
        ]
        engineer = _engineer(played.project)
        with web_server(var, port=port) as running:
            before = _web_processes(running)
            quiet, busy, answers = asyncio.run(_drill(running.url, people, engineer))
            died = sorted(before - _web_processes(running))
        checked = [_check(answer) for answer in answers if answer.status == 201]
        left = [path.name for path in (var / "scratch").iterdir() if path.name[0] != "."]
        bad = _report(quiet, busy, answers, checked, died, left)
    return 1 if bad else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _engineer(project: Any) -> str:
    from apps.accounts.models import Membership, User
    from apps.accounts.services import token_create

    emil = User.objects.create(username="emil")
    Membership.objects.create(project=project, user=emil, role="engineer")
    return token_create(user=emil, name="drill", scopes=["write"], days=1)[1]


def _web_processes(running: Running) -> set[int]:
    root = running.servers.web
    return {int(pid) for pid in Path(f"/proc/{root}/task/{root}/children").read_text().split()}


async def _drill(
    url: str, people: list[tuple[str, str]], engineer: str
) -> tuple[Votes, Votes, list[Answer]]:
    players = [ApiPlayer(url, SLUG, name, token) for name, token in people]
    await asyncio.gather(*(player.start() for player in players))
    quiet, busy = Votes(), Votes()
    voting = [asyncio.create_task(_vote(player, quiet)) for player in players]
    await asyncio.sleep(QUIET_SECONDS)
    quiet.stop = True
    await asyncio.gather(*voting)
    voting = [asyncio.create_task(_vote(player, busy)) for player in players]
    answers = [answer async for answer in _uploads(url, engineer)]
    busy.stop = True
    await asyncio.gather(*voting)
    await asyncio.gather(*(player.close() for player in players))
    return quiet, busy, answers


async def _vote(player: ApiPlayer, votes: Votes) -> None:
    while not votes.stop:
        started = time.perf_counter()
        try:
            await player.cycle()
        except Exception:  # whatever kept it from being stored
            votes.refused += 1
            await player.start()
        votes.seconds.append(time.perf_counter() - started)
        await asyncio.sleep(PAUSE)


async def _uploads(url: str, token: str) -> Any:
    from tests.labeling.hostile_files import PAIR, damaged_parquets, every_hostile_file

    rows = json.dumps(PAIR).encode() + b"\n"
    table = b"prompt,response_a,response_b\n\\ud800,b,c\n"
    files: list[tuple[str, bytes, dict[str, Any]]] = [
        *((name, data, {}) for name, data in every_hostile_file().items()),
        *((f"damaged Parquet {n}", data, {}) for n, data in enumerate(damaged_parquets())),
        *((f"settings {one!r}", rows, one) for one in SETTINGS),
        *(
            (f"table, {name!r}", table, {"container": "csv", "encoding": name, "delimiter": ","})
            for name in ENCODINGS
        ),
    ]
    timeout = aiohttp.ClientTimeout(total=120)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as session:
        for name, data, chosen in files:
            yield await _upload(session, name, data, chosen)


async def _upload(
    session: aiohttp.ClientSession, name: str, data: bytes, chosen: dict[str, Any]
) -> Answer:
    form = aiohttp.FormData()
    form.add_field("file", data, filename="upload")
    form.add_field("settings", json.dumps(chosen))
    started = time.perf_counter()
    try:
        async with session.post(f"/api/v1/projects/{SLUG}/imports", data=form) as answer:
            status, text = answer.status, await answer.text()
    except aiohttp.ClientError as error:
        status, text = 0, json.dumps({"code": f"no answer: {type(error).__name__}"})
    seconds = time.perf_counter() - started
    try:
        found = json.loads(text)
    except ValueError:
        found = {"code": "no JSON"}
    return Answer(name, len(data), status, found.get("code") or found.get("id", "?"), seconds)


def _check(answer: Answer) -> tuple[str, str, float]:
    """The whole file checked, as the imports worker does; (name, how it ended, seconds)."""
    from apps.common.errors import DomainError
    from apps.labeling import services
    from apps.labeling.models import ImportJob

    job, started = ImportJob.objects.get(pk=answer.code), time.perf_counter()
    try:
        services.import_job_check(job=job)
        services.import_job_run(job=job.pk)
    except DomainError as error:
        return answer.name, error.message, time.perf_counter() - started
    job.refresh_from_db()
    words = job.error or f"{job.check_report.get('n_refused')} of its rows refused"
    return answer.name, f"{job.state}: {words}", time.perf_counter() - started


def _report(
    quiet: Votes,
    busy: Votes,
    answers: list[Answer],
    checked: list[tuple[str, str, float]],
    died: list[int],
    left: list[str],
) -> bool:
    say = sys.stdout.write
    damaged = [a for a in answers if a.name.startswith("damaged")]
    for a in answers:
        if a not in damaged:
            say(f"{a.name[:48]:48} {a.size:>11,} B  {a.status}  {a.seconds:5.1f} s  {a.code}\n")
    codes = Counter(f"{a.status} {a.code if a.status != 201 else 'read'}" for a in damaged)
    slowest = max(a.seconds for a in damaged)
    say(f"{len(damaged)} damaged Parquet files: {dict(codes)}, slowest {slowest:.1f} s\n\n")
    for name, words, seconds in checked:
        if not name.startswith("damaged"):
            say(f"checked whole: {name[:40]:40} {seconds:5.1f} s  {words[:110]}\n")
    say("\nvotes            number   p50      p95      most     not stored\n")
    for name, votes in (("without uploads", quiet), ("during uploads", busy)):
        p50, p95, most = votes.quantile(50), votes.quantile(95), max(votes.seconds)
        say(
            f"{name:16} {len(votes.seconds):6}   {p50 * 1e3:4.0f} ms  {p95 * 1e3:4.0f} ms  "
            f"{most * 1e3:5.0f} ms  {votes.refused}\n"
        )
    errors = [a for a in answers if a.status == 0 or a.status >= 500]
    slow = [a for a in answers if a.seconds > MOST_SECONDS]
    say(
        f"\n{len(answers)} uploads: {len(errors)} errors of ours, {len(slow)} over "
        f"{MOST_SECONDS:g} s; {len(died)} web processes died, {len(left)} scratch files left\n"
    )
    return bool(errors or slow or died or left or busy.refused)


if __name__ == "__main__":
    sys.exit(main())
