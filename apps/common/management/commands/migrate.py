"""`manage.py migrate`, by the role that owns the tables; not on another version's database."""

from typing import Any

import dj_database_url
from django.conf import settings
from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from apps.common.health import unknown_migrations


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        if unknown := unknown_migrations(MigrationLoader(connections[options["database"]])):
            raise CommandError(
                f"This database was made by another version of Concord: {', '.join(unknown[:3])}"
                f"{' and more are' if unknown[3:] else ' is' if not unknown[1:] else ' are'} not"
                " known to this one. Nothing was changed. A database from before 0.2.0 cannot be"
                " upgraded: start with an empty one (another VAR_DIR, or another DATABASE_URL). A"
                " newer database needs the version that made it, or a newer one."
            )
        if not settings.DATABASE_OWNER_URL:
            return super().handle(*args, **options)
        connection = connections[options["database"]]
        application = connection.settings_dict.copy()
        owner = dj_database_url.parse(settings.DATABASE_OWNER_URL)
        connection.close()
        # The database's name stays: tests have one of their own.
        login = {name: owner[name] for name in ("USER", "PASSWORD", "HOST", "PORT")}
        connection.settings_dict.update(login)
        try:
            return super().handle(*args, **options)
        finally:
            connection.close()
            connection.settings_dict.update(application)
