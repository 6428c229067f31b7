"""`manage.py import_comparisons FILE --project SLUG`: a file of comparisons, from the shell.

What goes to standard output is the report (JSON with --json); progress, errors and warnings go to
standard error, a line each, `row N, field: message`. Exit codes: 0 imported (or the dry run found
no error), 1 rows refused and nothing written, 2 the command or the file cannot be used.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.labeling import selectors, services
from apps.labeling.formats import CONTAINERS, LAYOUTS, PAIRINGS
from apps.labeling.models import Task
from apps.labeling.services.importing import (
    FileRows,
    file_import,
    file_rows,
    report_of,
    votes_result,
)
from apps.labeling.services.imports import answers_become, file_parsed
from apps.labeling.services.results import ImportReport, RowProblem

LISTED = 50
_TELL_SECONDS = 0.5
_ANSWERS = ("pairing", "grade_low", "grade_high", "grade_low_label", "grade_high_label")


class Command(BaseCommand):
    help = (
        "Import comparisons (and past votes) from a file; nothing is written before all is checked."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--project", required=True, metavar="SLUG")
        parser.add_argument("--format", default="", choices=["", *CONTAINERS], dest="container")
        parser.add_argument("--layout", default="", choices=["", *LAYOUTS])
        parser.add_argument("--split", default="", help="of a dataset folder (train)")
        parser.add_argument("--encoding", default="")
        parser.add_argument("--delimiter", default="")
        parser.add_argument(
            "--map",
            action="append",
            default=[],
            metavar="FIELD=COLUMN",
            dest="mapping",
            help="which column fills a field; FIELD= leaves it out; may be repeated",
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            dest="constants",
            help="one value for every row: prompt, topic, language, source, licence",
        )
        parser.add_argument(
            "--pairing", choices=list(PAIRINGS), help="of N answers (what the project is for)"
        )
        scale = "of gradings (the project's)"
        parser.add_argument("--grade-low", type=int, help=f"lowest grade {scale}")
        parser.add_argument("--grade-high", type=int, help=f"highest grade {scale}")
        parser.add_argument("--grade-low-label", help=f"what the lowest grade means {scale}")
        parser.add_argument("--grade-high-label", help=f"what the highest grade means {scale}")
        parser.add_argument("--no-preference", action="store_true", help="forget published labels")
        parser.add_argument("--no-votes", action="store_true", help="leave past votes out")
        parser.add_argument("--rest", default="metadata", choices=["metadata", "drop"])
        parser.add_argument("--identical-answers", default="refuse", choices=["refuse", "warn"])
        parser.add_argument("--on-error", default="refuse", choices=["refuse", "skip"])
        parser.add_argument("--batch", default="", help="a name to find them by (the file's)")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--dry-run", action="store_true", help="check, and write nothing")
        parser.add_argument("--json", action="store_true", help="the report as JSON")

    def handle(self, *args: Any, **given: Any) -> None:
        project = Project.objects.filter(slug=given["project"]).first()
        if project is None:
            raise CommandError(f"There is no project {given['project']!r}.", returncode=2)
        if not given["file"].is_file():
            raise CommandError(f"There is no file {str(given['file'])!r}.", returncode=2)
        try:
            report, problems = self._run(project, given)
        except DomainError as error:
            where = f"{error.field}: " if error.field else ""
            raise CommandError(f"{where}{error.message}", returncode=2) from error
        self._say(report, as_json=given["json"], dry_run=given["dry_run"])
        if problems and given["on_error"] == "refuse":
            raise CommandError(
                f"{report['n_refused']:,} rows cannot be imported"
                + ("." if given["dry_run"] else ", so nothing was."),
                returncode=1,
            )

    def _run(self, project: Project, given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        found = self._read(project, given)
        most = selectors.settings_get(project=project).max_overlap
        # Checked first, so that a refusal lists the rows that could not be converted as well.
        check = self._load(project, found, given, dry_run=True)
        problems = sorted(found.problems + check.problems, key=lambda p: p.row)
        self._list("error", problems)
        self._list("warning", check.warnings)
        report = report_of(found, check, max_overlap=most)
        if given["dry_run"] or (problems and given["on_error"] == "refuse"):
            return report, bool(problems)
        made = self._load(project, found, given, dry_run=False)
        report = report_of(found, made, max_overlap=most)
        if found.votes:
            votes = services.votes_import(
                project=project,
                rows=found.votes,
                on_error="skip",
                make_room=True,
                progress=lambda n, total: self._tell(f"past votes: {n:,} of {total:,}"),
            )
            lost = [
                RowProblem(found.vote_numbers[p.row - 1], f"vote {p.field}", p.message)
                for p in votes.problems
            ]
            self._list("error", lost)
            report["votes"] = votes_result(votes, report["votes"])
        return report, bool(problems)

    def _read(self, project: Project, given: dict[str, Any]) -> FileRows:
        chosen = answers_become(project)
        chosen |= {name: given[name] for name in _ANSWERS if given[name] is not None}
        chosen |= {
            name: given[name]
            for name in (
                "container",
                "layout",
                "split",
                "encoding",
                "delimiter",
                "rest",
                "seed",
            )
        } | {
            "mapping": _pairs(given["mapping"], "--map"),
            "constants": _pairs(given["constants"], "--set"),
            "preference": not given["no_preference"],
            "votes": not given["no_votes"],
        }
        with file_parsed(given["file"].resolve(), chosen) as values:
            return file_rows(
                values,
                progress=lambda n: self._tell(f"read {n:,} rows"),
                recognised=self._recognised,
            )

    def _recognised(self, head: dict[str, Any]) -> None:
        mapping = ", ".join(f"{k} ← {v}" for k, v in head["mapping"].items())
        self.stderr.write(f"{head['container']}, {head['layout']}: {mapping}")
        for note in head["notes"]:
            self.stderr.write(note)

    def _load(
        self, project: Project, found: FileRows, given: dict[str, Any], *, dry_run: bool
    ) -> ImportReport:
        total = len(found.comparisons)
        what = "checked" if dry_run else "imported"
        return file_import(
            project=project,
            found=found,
            batch=given["batch"] or given["file"].name,
            seed=given["seed"],
            on_error=given["on_error"],
            identical_answers=given["identical_answers"],
            dry_run=dry_run,
            progress=lambda n: self._tell(f"{what} {n:,} of {total:,} comparisons"),
        )

    _told = 0.0

    def _tell(self, words: str) -> None:
        """Progress: a line that is written over on a terminal, a line each half second else."""
        if time.monotonic() - self._told >= _TELL_SECONDS:
            self._told = time.monotonic()
            end = "\r" if sys.stderr.isatty() else "\n"
            self.stderr.write(words, ending=end)

    def _list(self, level: str, problems: list[RowProblem]) -> None:
        for problem in problems[:LISTED]:
            self.stderr.write(f"{level}: row {problem.row}, {problem.field}: {problem.message}")
        if len(problems) > LISTED:
            self.stderr.write(f"… and {len(problems) - LISTED:,} more {level}s")

    def _say(self, report: dict[str, Any], *, as_json: bool, dry_run: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report))
            return
        verb = "would be" if dry_run else "are"
        what = "comparisons" if report["kind"] == Task.Kind.PAIR else "tasks"
        self.stdout.write(
            f"{report['n_records']:,} rows: {report['n_created']:,} {what} {verb} new, "
            f"{report['n_unchanged']:,} were here, {report['n_refused']:,} rows refused, "
            f"{report['n_review']:,} for review ({report['seconds']:.1f} s)"
        )
        if votes := report.get("votes"):
            counts = ", ".join(f"{k[2:]} {v:,}" for k, v in votes.items() if k.startswith("n_"))
            self.stdout.write(f"past votes: {counts}; at most {votes['most']:,} on one comparison")


def _pairs(words: list[str], option: str) -> dict[str, str]:
    found = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise CommandError(f"{option} needs FIELD=VALUE, not {word!r}.", returncode=2)
        found[name.strip()] = value
    return found
