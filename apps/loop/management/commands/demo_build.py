"""`manage.py demo_build`: the demo workspace, up to its queued runs."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.common.errors import DomainError
from apps.loop.demo import FULL, demo_build, pretrained_models
from apps.loop.round_end import round_end


class Command(BaseCommand):
    help = (
        "Build the demo workspace from the shipped data and queue its runs, on the models of "
        "`make models` where they are installed; safe to repeat."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made = demo_build(say=self._say, real=FULL if pretrained_models() else None)
            round_end(runs=made.runs, say=self._say)  # of a round that was stopped before its end
        except DomainError as error:
            raise CommandError(error.message) from error

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
