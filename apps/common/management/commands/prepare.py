"""`manage.py prepare`: what must be done once before the programs of a new version start."""

import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from apps.common import registry
from workers.artifacts import Store, StoreUnreachable


class Command(BaseCommand):
    help = "Wait for the database, migrate it, and make the artifact store's folder or bucket."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--wait", type=float, default=120.0, help="seconds for the database")

    def handle(self, *args: Any, **options: Any) -> None:
        until = time.monotonic() + options["wait"]
        while True:
            try:
                connection.ensure_connection()
                break
            except DatabaseError as error:
                if time.monotonic() > until:
                    raise CommandError(
                        f"DATABASE_URL: no connection in {options['wait']:.0f} s: {error}"
                    ) from error
            time.sleep(1.0)
        call_command("migrate", interactive=False, verbosity=1, stdout=self.stdout)
        try:
            Store(settings.ARTIFACTS_URL).make_root()
        except (StoreUnreachable, OSError) as error:
            raise CommandError(f"ARTIFACTS_URL: {error}") from error
        self.stdout.write("ready: the programs of this version may start")
        for line in registry.start_lines():
            self.stdout.write(line)
