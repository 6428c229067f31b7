"""`manage.py restore [TARGET] [--at NAME | --check | --list]`: a backup becomes this empty site."""

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common.errors import DomainError
from apps.monitoring.services.backups import (
    Target,
    backup_restore,
    inspect,
    restore_prove,
    target_of,
)


class Command(BaseCommand):
    help = (
        "Restore a backup into this site, which must be empty. Every hash is compared before "
        "anything is changed. --check restores it elsewhere, to see that it can be."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "target", nargs="?", default=settings.BACKUP_TARGET, help="default: BACKUP_TARGET"
        )
        parser.add_argument("--at", default="", metavar="NAME", help="default: the newest")
        parser.add_argument(
            "--check",
            action="store_true",
            help="restore into a PostgreSQL server of its own and compare; this site stays",
        )
        parser.add_argument("--list", action="store_true", help="name the backups and end")
        parser.add_argument(
            "--inspect",
            type=Path,
            default=None,
            metavar="FILE",
            help="what --check runs in the restored site; of no use elsewhere",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["inspect"]:
            self.stdout.write(json.dumps(inspect(hashes=options["inspect"])))
            return
        try:
            target = target_of(options["target"], settings.BACKUP_KEY_FILE)
            if options["list"]:
                self._list(target)
            elif options["check"]:
                proven = restore_prove(target=target, name=options["at"], say=self.stdout.write)
                self.stdout.write(f"backup {proven.name} can be restored")
            else:
                done = backup_restore(target=target, name=options["at"], say=self.stdout.write)
                self.stdout.write(
                    f"restored {done.name}: {done.rows:,} rows, {done.artifacts:,} files"
                )
                for remark in done.remarks:
                    self.stdout.write(remark)
        except DomainError as error:
            raise CommandError(error.message) from error

    def _list(self, target: Target) -> None:
        for name in target.names():
            self.stdout.write(name)
        for name in target.unfinished():
            self.stdout.write(f"{name} (never finished: no manifest)")
