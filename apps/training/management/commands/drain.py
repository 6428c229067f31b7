"""`manage.py drain NAME`: a worker finishes what it is at and takes no new run; `--off`: it takes
runs again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.common.errors import DomainError
from apps.training.models import DrainedWorker
from apps.training.screens.fleet import draining_words
from apps.training.selectors.queueing import fleet_state
from apps.training.services import worker_drain, worker_resume


class Command(BaseCommand):
    help = (
        "Let a worker finish what it is at and take no new run, also after a restart, until "
        "--off. Without a name: say which are drained."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("worker", nargs="?", help="its name on the Machines page: train@gpu-1")
        parser.add_argument("--off", action="store_true", help="let it take runs again")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["worker"]
        if not name:
            return self._tell()
        if options["off"]:
            was = worker_resume(name=name)
            self.stdout.write(f"{name} takes runs again." if was else f"{name} was not drained.")
            return None
        try:
            worker_drain(name=name)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{name} finishes what it is at and takes no new run.")
        return None

    def _tell(self) -> None:
        fleet = fleet_state()
        if fleet is None:
            self.stdout.write("Redis does not answer: what the workers are at is unknown.")
        heard = {worker.name: worker for worker in (fleet.workers if fleet else ())}
        rows = list(DrainedWorker.objects.order_by("name"))
        for row in rows:
            said = draining_words(heard[row.name]) if row.name in heard else "not heard"
            self.stdout.write(f"{row.name}: {said}, since {row.since:%Y-%m-%d %H:%M %Z}")
        if not rows:
            self.stdout.write("No worker is drained.")
