"""The rows that nearly every request reads to know who asks and what they may do.

By the ORM these two or three queries are built again in Python and planned again by PostgreSQL each
time (what that cost is in docs/speed.md). Here they are prepared
statements that fill ordinary model instances. Nothing is remembered between requests: who is
deactivated, removed or whose token is revoked is out with the next request.
"""
# ruff: noqa: S608 - what is pasted into the statements are our models' column names

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from django.db import connection, models
from django.utils.crypto import salted_hmac

from apps.accounts.models import ApiToken, Membership, Project, User
from apps.common.transactions import prepared_cursor

M = TypeVar("M", bound=models.Model)

# No request looks at these, and reading a time costs more than reading the rest of the row. They
# are loaded when somebody asks for them.
_LEFT_OUT = {"date_joined", "last_login"}


def user_get(pk: int) -> User | None:
    """The person, active or not."""
    row = _row(f"select {_columns(User)} from accounts_user where accounts_user.id = %s", pk)
    return _filled(User, row)[0] if row else None


def membership_get(*, user: User, slug: str) -> Membership | None:
    """The person's membership in an unarchived project, with the project."""
    row = _row(
        f"select {_columns(Membership)}, {_columns(Project)} from accounts_membership "
        "join accounts_project on accounts_project.id = accounts_membership.project_id "
        "where accounts_membership.user_id = %s and accounts_project.slug = %s "
        "and accounts_project.archived_at is null",
        user.pk,
        slug,
    )
    if row is None:
        return None
    membership, rest = _filled(Membership, row)
    membership.project, _ = _filled(Project, rest)
    return membership


def token_get(sha256: str) -> ApiToken | None:
    """The token of this hash unless it was revoked, with its person."""
    row = _row(
        f"select {_columns(ApiToken)}, {_columns(User)} from accounts_apitoken "
        "join accounts_user on accounts_user.id = accounts_apitoken.user_id "
        "where accounts_apitoken.sha256 = %s and accounts_apitoken.revoked_at is null",
        sha256,
    )
    if row is None:
        return None
    token, rest = _filled(ApiToken, row)
    token.user, _ = _filled(User, rest)
    return token


# --- from columns to instances --------------------------------------------------------------------


@cache
def _fields(model: type[models.Model]) -> list[models.Field]:
    return [field for field in model._meta.concrete_fields if field.name not in _LEFT_OUT]


@cache
def _columns(model: type[models.Model]) -> str:
    table = model._meta.db_table
    return ", ".join(f"{table}.{field.column}" for field in _fields(model))


def _row(statement: str, *values: Any) -> tuple[Any, ...] | None:
    with prepared_cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()


def _filled(model: type[M], row: tuple[Any, ...]) -> tuple[M, tuple[Any, ...]]:
    """(an instance from the first columns of the row, the columns after them)."""
    fields = _fields(model)
    values = [
        field.from_db_value(value, None, connection) if hasattr(field, "from_db_value") else value
        for field, value in zip(fields, row, strict=False)
    ]
    made = model.from_db(connection.alias, [field.attname for field in fields], values)
    return made, row[len(fields) :]


# What files that leave the site call people: `person-` and 12 hex digits of an HMAC of their
# number, under SECRET_KEY and a key of the file's kind. The same person has one name under one key
# and another under the next, so that two files cannot be joined by it.

NameOf = Callable[[int], str]
_SALT = "snapshots.pseudonyms"


def names_under(key: str) -> NameOf:
    def name_of(person: int) -> str:
        digest = salted_hmac(_SALT, f"{key}:{person}", algorithm="sha256").hexdigest()
        return f"person-{digest[:12]}"

    return name_of
