"""`manage.py migrate`, by the role that owns the tables."""

from typing import Any

import dj_database_url
from django.conf import settings
from django.core.management.commands import migrate
from django.db import connections


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
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
