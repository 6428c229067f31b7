"""`manage.py start PART`: one program of the web side, as a service runs it."""

import os
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.common import environment as env
from apps.common import processes
from workers import start


class Command(BaseCommand):
    help = (
        "Become one program of the web side, for a service manager that starts each by itself; "
        "training machines have python -m workers.start."
    )
    requires_system_checks = ()  # the program's own start has them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=processes.PARTS)
        parser.add_argument("--host", default="127.0.0.1", help="where web and streams listen")

    def handle(self, *args: Any, **options: Any) -> None:
        if missing := [n for n in ("DATABASE_URL", "REDIS_URL") if not env.text(n)]:
            raise CommandError(
                f"{' and '.join(missing)} must be set: a program that is started by itself has no"
                " embedded servers; `manage.py up` starts these with everything else."
            )
        if options["part"] in ("web", "streams"):
            os.environ.setdefault("DATABASE_POOL", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        start.become(
            processes.argv(
                options["part"],
                log_level=settings.LOG_LEVEL,
                host=options["host"],
            )
        )
