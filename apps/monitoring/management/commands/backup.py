"""`manage.py backup [TARGET] [--keep N]`: the database, the artifacts and what makes them whole."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common.errors import DomainError
from apps.monitoring.services.backups import backup_make, target_of


class Command(BaseCommand):
    help = (
        "Back this site up to a folder or any fsspec URL, such as s3://bucket/concord. The site "
        "may go on. With BACKUP_KEY_FILE everything is encrypted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "target", nargs="?", default=settings.BACKUP_TARGET, help="default: BACKUP_TARGET"
        )
        parser.add_argument(
            "--keep",
            type=int,
            default=0,
            metavar="N",
            help="then delete all but the newest N backups, and files that none of them needs",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["keep"] < 0:
            raise CommandError("--keep takes the number of backups that stay, 0 for all.")
        try:
            target = target_of(options["target"], settings.BACKUP_KEY_FILE)
            made = backup_make(target=target, keep=options["keep"], say=self.stdout.write)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"backup {made.name} in {target.words} is complete")
        if made.absent:
            raise CommandError(
                f"{len(made.absent):,} files that the database names are not in the artifact "
                "store. Everything else is in the backup."
            )
