"""`manage.py token_create --user NAME [--scope …] [--days N]`: an API token on standard output."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.models import SCOPES, User
from apps.accounts.services import token_create
from apps.common.errors import DomainError


class Command(BaseCommand):
    help = "Create an API token and print it, alone, on standard output. It is shown only here."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="sign-in name of the token's person")
        parser.add_argument(
            "--scope",
            action="append",
            choices=list(SCOPES),
            help="what it may be used for; repeat for more (default: read)",
        )
        parser.add_argument("--days", type=int, default=90, help="until it expires (default: 90)")
        parser.add_argument("--name", default="command line", help="what it is for")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"Nobody has the sign-in name '{options['user']}'.")
        try:
            _, text = token_create(
                user=user,
                name=options["name"],
                scopes=options["scope"] or ["read"],
                days=options["days"],
            )
        except DomainError as error:
            raise CommandError(error.message) from None
        self.stdout.write(text)
