"""`manage.py audit_export`: the audit log as lines that prove themselves."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.accounts.services.audit_export import audit_jsonl


class Command(BaseCommand):
    help = (
        "Write every sealed event of the audit log as JSON Lines with the hashes of its chain. "
        "`audit_verify --file` reads such a file without the database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="?", default="-", help="where to (default: the output)")
        parser.add_argument(
            "--after", type=int, default=0, metavar="POSITION", help="only what follows it"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        lines = audit_jsonl(by=None, after=options["after"])
        if options["file"] == "-":
            for line in lines:
                self.stdout.write(line.decode("utf-8", "surrogatepass"), ending="")
            return
        n = 0
        with Path(options["file"]).open("xb") as file:
            for line in lines:
                file.write(line)
                n += 1
        self.stdout.write(f"{n:,} events.")
