"""`manage.py demo`: the whole circle, headless, to the end."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common.errors import DomainError
from apps.loop import report, services
from apps.loop.demo import FULL, SMALL, Workspace, demo_build
from apps.loop.local import LocalWorkers
from apps.loop.report import markdown_lines, table_lines
from apps.loop.round_end import round_end
from apps.training.models import Run
from apps.training.services import run_resume

_SAY_EVERY = 15.0  # seconds between lines while one run continues


class Command(BaseCommand):
    help = (
        "Run the demo circle to its end and write VAR_DIR/demo/report.json; with --real on the "
        "models of `make models`, which writes report-real.json and report-real.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--timeout",
            type=float,
            help="seconds after which to give up; by default an hour, with --real two",
        )
        parser.add_argument("--real", action="store_true", help="on pretrained models")
        parser.add_argument("--small", action="store_true", help="with --real: few rows and steps")

    def handle(self, *args: Any, **options: Any) -> None:
        self._started = time.monotonic()
        if options["small"] and not options["real"]:
            raise CommandError("--small: it needs --real; the other demo is small already.")
        real = (SMALL if options["small"] else FULL) if options["real"] else None
        timeout = options["timeout"]
        if timeout is None:
            timeout = 7200.0 if real else 3600.0
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        call_command("migrate", interactive=False, verbosity=0)
        workers = LocalWorkers(self._say)
        try:
            workers.ensure()
            workspace = demo_build(say=self._say, real=real)
            self._resume_failed(workspace)
            self._wait(workspace, workers, self._started + timeout)
            services.fresh_pairs_queue(run=workspace.runs["generate"])
            round_end(runs=workspace.runs, say=self._say)
            results = report.report_make(workspace)
        except DomainError as error:
            raise CommandError(error.message) from error
        except KeyboardInterrupt:
            raise CommandError("Interrupted; run it again to go on.", returncode=130) from None
        finally:
            workers.stop()
        self._write(results, f"report-real{'-small' if options['small'] else ''}" if real else "")

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        self.stdout.write(f"{seconds:6.1f} s  {text}")
        self.stdout.flush()

    def _resume_failed(self, workspace: Workspace) -> None:
        """What failed or was cancelled in an earlier try continues, first things first."""
        for stage, run in workspace.runs.items():
            if run.state in (Run.State.FAILED, Run.State.CANCELLED):
                self._say(
                    f"{stage}: resuming, it was {run.state} ({run.failure_kind or 'by hand'})"
                )
                run_resume(run=run)

    def _wait(self, workspace: Workspace, workers: LocalWorkers, deadline: float) -> None:
        watched = [_Watched(stage, run) for stage, run in workspace.runs.items()]
        while True:
            workers.tick()
            for item in watched:
                for line in item.news():
                    self._say(line)
            if all(item.run.state == Run.State.FINISHED for item in watched):
                return
            if time.monotonic() > deadline:
                stage = next(x for x in watched if x.run.state != Run.State.FINISHED)
                raise CommandError(f"{stage.stage}: still {stage.run.state} after the time limit.")
            time.sleep(1.0)

    def _write(self, results: dict[str, Any], name: str) -> None:
        path = Path(settings.VAR_DIR) / "demo" / f"{name or 'report'}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        if name:
            path.with_suffix(".md").write_text("\n".join(markdown_lines(results)) + "\n")
        self.stdout.write("")
        for line in table_lines(results):
            self.stdout.write(line)
        self.stdout.write(f"All results: {path}")


class _Watched:
    """One run, and what there is to say of it."""

    def __init__(self, stage: str, run: Run) -> None:
        self.stage, self.run = stage, run
        self._state, self._said_at = "", 0.0

    def news(self) -> list[str]:
        """Lines since the last call; `CommandError` when the run failed."""
        if self._state == Run.State.FINISHED:
            return []
        self.run.refresh_from_db()
        run = self.run
        if run.state in (Run.State.FAILED, Run.State.CANCELLED):
            why = f"{run.failure_kind}: {run.failure_message}" if run.failure_kind else "by hand"
            raise CommandError(f"{self.stage} {run.state}. {why}")
        changed = run.state != self._state
        due = run.state == Run.State.RUNNING and time.monotonic() - self._said_at > _SAY_EVERY
        if not changed and not due:
            return []
        self._state, self._said_at = run.state, time.monotonic()
        if run.state == Run.State.WAITING:
            return []
        where = ""
        if run.state == Run.State.FINISHED and run.seconds is not None:
            where = f" after {run.seconds / 60:.1f} minutes"
        if run.state == Run.State.RUNNING and run.total_steps:
            where = f", step {run.step} of {run.total_steps} {run.phase}".rstrip()
        return [f"{self.stage}: {run.state}{where}"]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
