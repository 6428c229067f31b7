"""`manage.py replay_events FILE`: import the spool of a machine that was cut off."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.training.services import spool_import


class Command(BaseCommand):
    help = (
        "Import an event spool (events.jsonl). What is in already is skipped: it may be repeated."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="events.jsonl of an attempt")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        try:
            with file.open("rb") as lines:
                report = spool_import(lines=lines)
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}") from error
        self.stdout.write(f"applied     {report.applied}")
        self.stdout.write(f"superseded  {report.superseded} (kept for the record)")
        self.stdout.write(f"skipped     {report.skipped} (were in already)")
        self.stdout.write(f"invalid     {report.invalid}")
        self.stdout.write(f"unreadable  {report.unreadable}")
        for problem in report.problems:
            self.stderr.write(problem)
        if report.problems:
            raise CommandError("Not everything could be imported.")
