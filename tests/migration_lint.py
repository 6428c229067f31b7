"""Whether a new migration lets the version before it go on: `python -m tests.migration_lint`.

squawk reads the SQL of every migration of our apps that is not in `tests/upgrade/migrations.txt`,
those of releases. What it finds is refused (docs/upgrading.md says what to do instead), unless
`tests/upgrade/migrations_allowed.txt` has the migration, the rule and a reason. With `--release`
today's migrations and columns become those of a release.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent / "upgrade"
RELEASED, ALLOWED = HERE / "migrations.txt", HERE / "migrations_allowed.txt"
COLUMNS = HERE / "columns.txt"  # table.column of the same releases: what their INSERTs may name
# Of style, or about what `migrate` sets itself.
LEFT_OUT = (
    "prefer-bigint-over-int",
    "prefer-bigint-over-smallint",
    "prefer-robust-stmts",
    "prefer-text-field",
    "require-timeout-settings",
)
POSTGRESQL = "16"  # the oldest that we run on


class Finding(NamedTuple):
    """Something that the version before, or a busy site, would suffer from."""

    migration: str
    rule: str
    says: str


def lint(statements: Mapping[str, str]) -> list[Finding]:
    """Of the SQL of migrations, by their names."""
    found: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {str(Path(folder) / f"{name}.sql"): name for name in statements}
        for path, name in paths.items():
            Path(path).write_text(statements[name])
        if not paths:
            return found
        argv = [
            str(Path(sys.executable).with_name("squawk")),
            "--reporter=json",
            f"--pg-version={POSTGRESQL}",
            f"--exclude={','.join(LEFT_OUT)}",
            *paths,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or (done.returncode and not done.stdout.strip()):
            raise SystemExit(f"squawk failed: {done.stderr}")
        for one in json.loads(done.stdout or "[]"):
            found.append(Finding(paths[one["file"]], one["rule_name"], one["message"]))
    return found


def refused(found: Iterable[Finding], allowed: str) -> list[Finding]:
    """What no line of `allowed` gives a reason for: `app.migration rule reason`."""
    known = set()
    for line in allowed.splitlines():
        if line.strip() and not line.startswith("#"):
            migration, rule, reason = line.split(None, 2)
            known.add((migration, rule, bool(reason)))
    return [one for one in found if (one.migration, one.rule, True) not in known]


def new_statements(released: str) -> Iterator[tuple[str, str]]:
    """(app.migration, its SQL) of every migration of our apps that is not `released`."""
    from django.core.management import call_command
    from django.db.migrations.loader import MigrationLoader

    for app, name in sorted(MigrationLoader(None).disk_migrations):
        if f"{app}.{name}" not in released.split() and app in _own():
            out = StringIO()
            call_command("sqlmigrate", app, name, stdout=out, no_color=True)
            yield f"{app}.{name}", out.getvalue()


def _own() -> set[str]:
    from apps.common.health import own_labels

    return own_labels()


def columns_refused(released: str, asked: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Of a schema as (table, column, whether an INSERT must name it), what a version that knows the
    `released` columns alone cannot work with: in words."""
    known = {tuple(line.split(".")) for line in released.split()}
    tables = {table for table, _ in known}
    now = {(table, column): needed for table, column, needed in asked}
    gone = [f"{table}.{column} is gone" for table, column in sorted(known - now.keys())]
    return gone + [
        f"{table}.{column} is NOT NULL and has no default in the database"
        for (table, column), needed in sorted(now.items())
        if needed and table in tables and (table, column) not in known
    ]


# information_schema shows a role what it may use: the application's is asked.
COLUMNS_NOW = """
select table_name, column_name,
       is_nullable = 'NO' and column_default is null and is_identity = 'NO'
from information_schema.columns where table_schema = 'public' order by 1, 2
"""


def release() -> None:
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS_NOW)
        COLUMNS.write_text("".join(f"{table}.{name}\n" for table, name, _ in cursor.fetchall()))
    own = _own()
    names = [f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations if app in own]
    RELEASED.write_text("".join(f"{name}\n" for name in sorted(names)))


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from apps.common import embedded

    with embedded.servers():
        import django

        django.setup()
        if "--release" in sys.argv:
            release()
            return
        statements = dict(new_statements(RELEASED.read_text()))
    wrong = refused(lint(statements), ALLOWED.read_text())
    for one in wrong:
        print(f"{one.migration}: {one.rule}: {one.says}")
    if wrong:
        sys.exit(f"{len(wrong)} things in new migrations; docs/upgrading.md says what to do.")
    print(f"{len(statements)} new migrations: nothing that the version before would suffer from")


if __name__ == "__main__":
    main()
