"""Whether the database's migrations are ones that this version knows."""

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader


def unknown_migrations(connection: BaseDatabaseWrapper) -> list[str]:
    """Migrations of Concord's own apps that the database has and this version does not, as
    "app.name": those of another version, newer than this one or older than 0.2.0."""
    loader = MigrationLoader(connection)
    own = {config.label for config in apps.get_app_configs() if config.name.startswith("apps.")}
    return sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in own and (app, name) not in loader.disk_migrations
    )
