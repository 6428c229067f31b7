"""Everything that the site holds of one person, as a file for them.

Every table with a column that points at accounts is in it, one JSON Lines file each: a new table is
included without being named here. What would give somebody else's secret away, or a hidden one of
the work, is left out by name (`LEFT_OUT`).
"""

import json
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q

from apps.accounts.models import Invitation, User
from apps.accounts.services.audit import audit_record
from apps.common.row_files import scratch_file

# Columns that stay out, by their end: hashes of what opens something, and secrets.
SECRET = (
    "password",
    "sha256",
    "secret",
    "secret_before",
    "share_key",
    "salts",
    "sealed",
    "session_key",
)
LEFT_OUT = {
    "labeling_slot.kind": "would tell which pairs are gold or repeats",
    "labeling_vote": "the same rows as labeling_answer",
    "mfa_authenticator.data": "opens the account",
}
_PART = 1_000
README = """What {site} holds of the person with the account number {number}.

profile.json     the account itself
invitations.jsonl  invitations to the account's e-mail address
tables/*.jsonl   every table that points at the account, a row a line; "as" names the columns by
                 which it does. Tokens are without their hashes, passwords and second factors are
                 left out, and so is which pairs of the work were there to measure.
"""


def person_data(*, user: User, by: User) -> IO[bytes]:
    """A zip, open for reading at its beginning; the caller closes it. It leaves an event."""
    file, rows = scratch_file(), 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", README.format(site=settings.SITE_URL, number=user.pk))
        archive.writestr("profile.json", _json(_row(user, []), indent=1))
        sent = Invitation.objects.filter(email__iexact=user.email).exclude(email="")
        rows += _lines(archive, "invitations", (_row(one, ["email"]) for one in sent))
        for model, names in tables_of_people():
            found = _rows(model, names, user)
            rows += _lines(archive, f"tables/{model._meta.db_table}", found)
    file.seek(0)
    audit_record(action="person.exported", actor=by, subject=user, details={"rows": rows})
    return file


def tables_of_people() -> list[tuple[type[models.Model], list[str]]]:
    """Each table with the columns that point at accounts."""
    found = []
    for model in apps.get_models(include_auto_created=True):
        names = [
            field.name
            for field in model._meta.concrete_fields
            if field.remote_field is not None and field.related_model is User
        ]
        if names and model._meta.db_table not in LEFT_OUT:
            found.append((model, names))
    return found


def _rows(model: type[models.Model], names: list[str], user: User) -> Iterator[dict[str, Any]]:
    wanted = Q()
    for name in names:
        wanted |= Q(**{name: user.pk})
    for row in model._base_manager.filter(wanted).order_by("pk").iterator(chunk_size=_PART):
        yield _row(row, [name for name in names if row.serializable_value(name) == user.pk])


def _row(row: models.Model, names: list[str]) -> dict[str, Any]:
    table = row._meta.db_table
    return {"as": names} | {
        field.attname: row.serializable_value(field.name)
        for field in row._meta.concrete_fields
        if not field.attname.endswith(SECRET) and f"{table}.{field.attname}" not in LEFT_OUT
    }


def _lines(archive: zipfile.ZipFile, name: str, rows: Iterator[dict[str, Any]]) -> int:
    """A file in the zip, if there is a row; returns how many."""
    n, first = 1, next(rows, None)
    if first is None:
        return 0
    with archive.open(f"{name}.jsonl", "w") as file:
        file.write(_json(first).encode() + b"\n")
        for row in rows:
            file.write(_json(row).encode() + b"\n")
            n += 1
    return n


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=indent)
