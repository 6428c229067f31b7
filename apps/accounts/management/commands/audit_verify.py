"""`manage.py audit_verify`: whether the audit log is what was sealed."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.services.audit_chain import audit_verify
from apps.accounts.services.audit_export import lines_verify

SHOWN = 50


class Command(BaseCommand):
    help = (
        "Compare every event of the audit log with the chain of hashes, and the chain with the "
        "heads in the artifact store. Ends with 1 where something was changed or deleted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--file", help="a file of `audit_export`, read without the database")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["file"]:
            with Path(options["file"]).open("rb") as lines:
                self._say(*lines_verify(lines))
            return
        found = audit_verify()
        self.stdout.write(
            f"{found.sealed:,} events in the chain, {found.unsealed:,} not yet, "
            f"{found.heads:,} daily heads; an erasure took texts out of {found.erased:,} events."
        )
        for one in found.broken[:SHOWN]:
            self.stdout.write(f"event {one.event}: {one.what}" if one.event else one.what)
        if found.broken:
            raise CommandError(f"{len(found.broken):,} things are not as they were sealed.")
        self.stdout.write("Nothing was changed.")

    def _say(self, n: int, wrong: list[str]) -> None:
        self.stdout.write("\n".join([f"{n:,} events in the file.", *wrong[:SHOWN]]))
        if wrong:
            raise CommandError(f"{len(wrong):,} things are not as they were sealed.")
        self.stdout.write("Nothing was changed.")
