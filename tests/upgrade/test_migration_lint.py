"""Migrations that the version before would not survive are refused."""

import pytest
from django.db import connection

from tests.database import as_superuser
from tests.migration_lint import (
    ALLOWED,
    COLUMNS,
    COLUMNS_NOW,
    RELEASED,
    Finding,
    columns_refused,
    lint,
    new_statements,
    refused,
)

PLANTED = {
    "adding-required-field": 'alter table "labeling_answer" add column "mood" integer not null;',
    "ban-drop-default": """
        alter table "labeling_answer" add column "mood" integer default 1 not null;
        alter table "labeling_answer" alter column "mood" drop default;""",
    "ban-drop-column": 'alter table "training_run" drop column "name" cascade;',
    "renaming-column": 'alter table "training_run" rename column "name" to "title";',
    "require-concurrent-index-creation": 'create index "moods" on "labeling_answer" ("at");',
    "changing-column-type": """
        alter table "training_run" alter column "name" type text using "name"::text;""",
    "ban-concurrent-index-creation-in-transaction": """
        create index concurrently "moods" on "labeling_answer" ("at");""",
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_migration_is_refused(rule: str) -> None:
    found = lint({"labeling.9999_bad": f"BEGIN;\n{PLANTED[rule]}\nCOMMIT;\n"})
    assert {(one.migration, one.rule) for one in refused(found, "")} == {
        ("labeling.9999_bad", rule)
    }


def test_what_the_version_before_survives_is_let_through() -> None:
    good = """
        BEGIN;
        alter table "labeling_answer" add column "mood" varchar(5) default 'calm' not null;
        create table "labeling_mood" ("id" bigint primary key, "name" varchar(8) not null);
        create index "mood_name" on "labeling_mood" ("name");
        COMMIT;"""
    alone = 'create index concurrently if not exists "moods" on "labeling_answer" ("at");'
    assert lint({"labeling.9998_good": good, "labeling.9999_index": alone}) == []


def test_an_exception_needs_the_migration_the_rule_and_a_reason() -> None:
    one = Finding("labeling.9999_bad", "ban-drop-column", "It may break.")
    assert refused([one], "labeling.9999_bad ban-drop-column nothing reads it since 0.4") == []
    assert refused([one], "labeling.9999_bad renaming-column it is another one") == [one]
    assert refused([one], "labeling.9998 ban-drop-column another migration") == [one]
    with pytest.raises(ValueError, match="not enough values"):
        refused([one], "labeling.9999_bad ban-drop-column")


@pytest.mark.django_db(transaction=True)  # Django refuses to print concurrent ones inside one
def test_new_migrations_are_let_through() -> None:
    statements = dict(new_statements(RELEASED.read_text()))
    assert refused(lint(statements), ALLOWED.read_text()) == []


# The version before writes rows into the new schema: it names the columns that it knows.


def columns_wrong() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS_NOW)
        return columns_refused(COLUMNS.read_text(), cursor.fetchall())


@pytest.mark.django_db
def test_the_version_before_can_read_and_write_its_rows_in_the_new_schema() -> None:
    assert len(COLUMNS.read_text().split()) > 900
    assert columns_wrong() == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "alter table training_run add column mood int not null",
            ["training_run.mood is NOT NULL and has no default in the database"],
        ),
        ("alter table training_run rename column seed to sown", ["training_run.seed is gone"]),
        ("alter table training_run add column mood int not null default 1", []),
        ("alter table training_run add column mood int", []),
        ("create table moods (id int not null)", []),
    ],
)
def test_a_planted_column_that_it_cannot_fill_is_refused(statement, says) -> None:
    with as_superuser(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert [line for line in columns_wrong() if "sown" not in line] == says
