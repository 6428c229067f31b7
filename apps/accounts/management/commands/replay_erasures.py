"""`manage.py replay_erasures`: erase again whoever a restored backup brought back."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services.erasure import replay_erasures


class Command(BaseCommand):
    help = (
        "Erase again everybody on the list of erasures in the artifact store who is in the "
        "database as before. Run it after a restore, before anybody is let in."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        found = replay_erasures()
        self.stdout.write(
            f"{len(found.erased):,} people erased again, {found.known:,} were erased already, "
            f"{found.gone:,} are not in this database."
        )
        if found.unreadable:
            raise CommandError(f"Cannot be read: {', '.join(found.unreadable)}.")
