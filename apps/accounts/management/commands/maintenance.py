"""`manage.py maintenance --minutes 30`: close the site, and `--off`: open it again."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.selectors import maintenance_now
from apps.accounts.services import maintenance_begin, maintenance_end
from apps.common.errors import DomainError


class Command(BaseCommand):
    help = (
        "Close the site to everybody but its administrators: pages and API answer 503 and say "
        "until when, no run is given a slot, what is under way continues. Without an option: "
        "say how it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--minutes", type=int, help="until so many minutes from now")
        parser.add_argument("--message", default="", help="what people are told besides the time")
        parser.add_argument("--off", action="store_true", help="open it again")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["off"]:
            was = maintenance_end()
            self.stdout.write("The site is open again." if was else "The site was open.")
        elif options["minutes"] is not None:
            until = timezone.now() + timedelta(minutes=options["minutes"])
            try:
                row = maintenance_begin(until=until, message=options["message"])
            except DomainError as error:
                raise CommandError(error.message) from error
            self.stdout.write(f"The site is closed {row}.")
        else:
            row = maintenance_now()
            self.stdout.write(f"The site is closed {row}." if row else "The site is open.")
