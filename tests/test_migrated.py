"""The migrated database that is kept between runs is forgotten once it might be another."""

import ast
import importlib.util
from pathlib import Path

import pytest
from django.core.management import call_command

from apps.common import environment as env
from tests.migrated import fingerprint, made_of


def imported_files(migration: Path) -> set[Path]:
    """Files of the project that a migration imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(migration.read_text())):
        if isinstance(node, ast.Import):
            names.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = migration.relative_to(env.ROOT).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            names |= {module} | {f"{module}.{one.name}" for one in node.names}
    found = set()
    for name in names:
        if name.partition(".")[0] in {"apps", "config", "measures", "tests", "workers"}:
            try:
                spec = importlib.util.find_spec(name)
            except ModuleNotFoundError:  # a name of a module's
                continue
            if spec and spec.origin:
                found.add(Path(spec.origin))
    return found


def test_whatever_a_migration_imports_is_looked_at() -> None:
    migrations = sorted((env.ROOT / "apps").glob("*/migrations/0*.py"))
    looked_at = set(made_of())
    assert set(migrations) <= looked_at
    for migration in migrations:
        missed = imported_files(migration) - looked_at
        assert not missed, f"{migration} imports them: add them to OURS of tests/migrated.py"


def test_an_import_of_another_part_would_be_found(tmp_path: Path) -> None:
    planted = env.ROOT / "apps" / "labeling" / "migrations" / "0001_initial.py"
    assert imported_files(planted)
    other = tmp_path / "0099_planted.py"
    other.write_text("from apps.labeling import services\nimport measures.voting\n")
    names = {path.relative_to(env.ROOT).as_posix() for path in imported_files(other)}
    assert names >= {"apps/labeling/services/__init__.py", "measures/voting/__init__.py"}
    assert not imported_files(other) <= set(made_of())


@pytest.mark.parametrize("change", ["another text", "another name", "one more"])
def test_a_changed_migration_is_another_database(tmp_path: Path, change: str) -> None:
    first = tmp_path / "0001_initial.py"
    first.write_text("one")
    before = fingerprint([first])
    assert fingerprint([first]) == before
    if change == "another text":
        first.write_text("other")
    elif change == "another name":
        first = first.rename(tmp_path / "0001_other.py")
    (tmp_path / "0002_more.py").write_text("more")
    files = [first, tmp_path / "0002_more.py"] if change == "one more" else [first]
    assert fingerprint(files) != before


def test_what_was_read_has_every_migration(db: None) -> None:
    call_command("migrate", check_unapplied=True, verbosity=0)
