"""`manage.py second_factor_reset NAME`: for somebody who lost the phone and the recovery codes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.models import User
from apps.accounts.services import second_factor_reset
from apps.common.errors import DomainError


class Command(BaseCommand):
    help = "Take all second factors and recovery codes from a person and end their sessions."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the person's sign-in name")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"]).first()
        if user is None:
            raise CommandError(f"Nobody has the sign-in name '{options['name']}'.")
        try:
            second_factor_reset(user=user, by=None)
        except DomainError as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"{user.username} signs in by password alone now.")
