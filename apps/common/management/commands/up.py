"""`manage.py up`: everything, until Ctrl-C."""

import json
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common import embedded, processes, registry
from apps.common import environment as env

SIGN_INS = "demo-sign-ins.json"


class Command(BaseCommand):
    help = "Start web server, workers and scheduler under one supervisor, until Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--no-demo", action="store_true", help="do not build the demo workspace"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        started = time.monotonic()
        self._refuse_taken_port(settings.PORT)
        closed = env.make_private(settings.VAR_DIR, leave=("postgres",))
        if closed:
            self._say(f"files below {settings.VAR_DIR} that others could open: {closed:,}, closed")
        self._say("database: migrating")
        call_command("migrate", interactive=False, verbosity=0)
        self._say("static files: collecting")
        call_command("collectstatic", interactive=False, verbosity=0)
        echo = processes.console(color=sys.stdout.isatty())
        supervisor = processes.Supervisor(
            processes.programs(port=settings.PORT, log_level=settings.LOG_LEVEL),
            logs=settings.VAR_DIR / "logs",
            echo=echo,
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.stop.set())
        supervisor.start()
        if not options["no_demo"]:
            argv = (sys.executable, "manage.py", "demo_build")
            supervisor.add(processes.Program("demo", argv, once=True))
        banner = _Banner(
            started,
            echo,
            supervisor.start_delayed,
            need_sign_ins=not options["no_demo"],
            var=settings.VAR_DIR,
        )
        with embedded.ServerKeeper(settings.VAR_DIR, embedded.own_servers(), echo=echo):
            supervisor.run(until=banner.show_when_ready)
        self._say("stopped")

    def _say(self, text: str) -> None:
        self.stdout.write(f"{'concord':<9} | {text}")
        self.stdout.flush()

    def _refuse_taken_port(self, port: int) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise CommandError(
                    f"Port {port} is taken. Stop what uses it, or choose another: "
                    f"PORT={port + 10} make run"
                ) from error


class _Banner:
    """Says once where Concord is and who may sign in."""

    def __init__(
        self,
        started: float,
        echo: Callable[[str, str], None],
        on_answer: Callable[[], None],
        *,
        need_sign_ins: bool,
        var: Path,
    ) -> None:
        self._started, self._echo, self._on_answer = started, echo, on_answer
        self._sign_ins = var / SIGN_INS
        self._need_sign_ins = need_sign_ins
        self._shown = self._answered = False
        self._url = f"http://127.0.0.1:{settings.PORT}"

    def show_when_ready(self) -> bool:
        """Always False: the site runs until it is stopped. Workers leave the processors to the web
        servers until these answer."""
        if not self._answered and _answers(f"{self._url}/livez"):  # pages redirect to HTTPS
            self._answered = True
            self._on_answer()
        if not self._answered or self._shown:
            return False
        if self._need_sign_ins and not self._sign_ins.exists():
            return False
        self._shown = True
        seconds = time.monotonic() - self._started
        lines = [f"Concord answers at {self._url} (after {seconds:.0f} s). Ctrl-C stops it."]
        if self._need_sign_ins:
            people = json.loads(self._sign_ins.read_text())
            lines += [f"  {p['role']:<10} {p['username']:<8} {p['password']}" for p in people]
        lines += registry.start_lines()
        lines.append(f"  logs and data: {env.var_dir()}")
        for line in ["", *lines, ""]:
            self._echo("concord", line)
        return False


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
