"""Keep a release for the upgrade tests: `python -m tests.upgrade.keep 0.2.0`.

Writes `tests/upgrade/<version>/`: `site.sql.gz`, a small site of that version (schema, applied
migrations and rows), and `requests.txt`, the pages and API reads that answer 200 to its
administrator without the files of its artifact store. Run once for each release, by its own code.
"""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from apps.common.embedded.postgres import program

HERE = Path(__file__).parent


def main(version: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    # The servers start where this is imported, before Django reads its settings.
    from tests import servers  # noqa: F401  # isort: skip

    os.environ["DEBUG"] = "true"  # static files without their manifest
    import django

    django.setup()
    from django.core.management import call_command
    from django.test.utils import setup_test_environment

    setup_test_environment()
    call_command("migrate", verbosity=0)
    from tests.web.access_table import TABLE, address
    from tests.web.world import world_make

    world, paths = world_make(), set()
    for line in TABLE:
        if line.name.startswith("GET /") if line.is_api else line.method == "GET":
            data = line.data(world) if callable(line.data) else line.data
            paths.add(address(line, world) + (f"?{urlencode(data)}" if data else ""))
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    with gzip.GzipFile(folder / "site.sql.gz", "wb", mtime=0) as file:
        file.write(_dump())
    answered = _answered(world.ada, paths - {"/metrics"})  # open with DEBUG only
    (folder / "requests.txt").write_text("".join(f"{path}\n" for path in answered))


def _dump() -> bytes:
    """The database as SQL that a driver can run: without psql's own commands (`\\restrict`)."""
    options = ["--no-owner", "--no-privileges", "--rows-per-insert=100"]
    argv = [program("pg_dump"), *options, os.environ["DATABASE_URL"]]
    dump = subprocess.run(argv, check=True, capture_output=True).stdout
    return b"".join(line for line in dump.splitlines(True) if not line.startswith(b"\\"))


def _answered(user: object, paths: set[str]) -> list[str]:
    from django.conf import settings
    from django.test import Client

    shutil.rmtree(settings.ARTIFACTS_URL)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return sorted(path for path in paths if client.get(path).status_code == 200)


if __name__ == "__main__":
    main(sys.argv[1])
