"""Of a site, what a restore must bring back: a hash for each table, and for each file.

`python -m tests.upgrade.figures` prints it for the site of the environment, and sweeps its runs
first: what was under way must come to a clear state without Redis.
"""

import hashlib
import json
from typing import Any

# Tables that a backup and a restore write to themselves.
OWN = {"monitoring_backupreport", "accounts_auditevent", "accounts_auditlink", "django_migrations"}


def figures() -> dict[str, Any]:
    from django.conf import settings
    from django.db import connection

    from apps.monitoring.services.backups.database import counted
    from workers.artifacts import Store

    store, tables = Store(settings.ARTIFACTS_URL), {}
    with connection.cursor() as cursor:

        def ask(text: str) -> list[Any]:
            cursor.execute(text)
            return cursor.fetchall()

        for table, n in counted(ask).items():
            if n and table not in OWN:
                rows = ask(f'select t::text from public."{table}" t order by 1')
                text = "\n".join(row for (row,) in rows)
                tables[table] = hashlib.sha256(text.encode()).hexdigest()
    files = {
        path: hashlib.sha256(store.read_bytes(path)).hexdigest()
        for path in store.files()
        if not path.startswith("audit/")
    }
    return {"tables": tables, "files": files}


def main() -> None:
    import django

    from config.celery import app  # noqa: F401 - tasks are sent through it

    django.setup()
    from django.db import transaction

    from apps.accounts.services.audit_chain import audit_verify
    from apps.common import health
    from apps.training.models import Run
    from apps.training.services.sweeping import runs_sweep

    found = figures()
    runs_sweep()
    with transaction.atomic():
        found["runs"] = {row.pk: [row.state, row.attempt] for row in Run.objects.all()}
    found["audit"] = [broken.what for broken in audit_verify().broken]
    found["health"] = health.database() or health.migrations()
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    from apps.common import embedded

    with embedded.servers():
        main()
