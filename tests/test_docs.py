"""Documentation is tested: what the code reads and offers is written down."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def environment_names() -> set[str]:
    """Names read through `apps.common.environment`, wherever it is used."""
    names = set()
    for path in [*ROOT.glob("config/*.py"), *ROOT.glob("apps/**/*.py")]:
        names |= set(
            re.findall(
                r"\benv\.(?:text|flag|number|choice|words|token|networks|syslog|roles|claim_rules)\(\s*\"([A-Z_]+)\"",
                path.read_text(),
            )
        )
    return names


def test_every_environment_variable_is_documented() -> None:
    names = environment_names()
    assert {"VAR_DIR", "SECRET_KEY", "PORT"} - names == {"VAR_DIR"}  # read by var_dir() itself
    documented = set(re.findall(r"^\| `([A-Z_]+)`", (ROOT / "docs/settings.md").read_text(), re.M))
    assert names - documented == set()
    assert documented - names - {"VAR_DIR"} == set()


def test_every_make_target_explains_itself_and_is_phony() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())
    explained = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.M))
    assert explained == phony


def test_every_decision_record_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    for path in (ROOT / "docs/adr").glob("0*.md"):
        assert f"({path.name})" in index


def test_no_path_of_a_machine_is_committed() -> None:
    """Written in pieces, so that this file does not contain what it looks for."""
    forbidden = ["/wo" + "rk/", "/ro" + "ot/", "py" + "pi.org", "python" + "hosted", "npm" + "js"]
    for path in [*ROOT.glob("*.*"), *ROOT.glob("requirements/*"), *ROOT.glob("docs/**/*.md")]:
        if path.is_file():
            text = path.read_text(errors="ignore")
            assert not [word for word in forbidden if word in text], path


# docs/features.md is complete and names nothing that does not exist.


PAGE = ROOT / "docs" / "features.md"
# How many rows each section of the specification has.
SECTIONS = {
    "A": 11,
    "B": 11,
    "C": 12,
    "D": 15,
    "E": 18,
    "F": 11,
    "G": 7,
    "H": 3,
    "J": 6,
    "K": 10,
    "L": 3,
    "M": 5,
    "N": 4,
}

ROWS = [f"{letter}{number}" for letter, n in SECTIONS.items() for number in range(1, n + 1)]
STATES = {"done", "part", "not yet"}
NOTHING = "—"
COLUMNS = ("row", "capability", "state", "where", "test", "missing")


def table() -> list[dict[str, str]]:
    """Every row of every table on the page, cells by column."""
    lines = re.findall(r"^\| ([A-Z]\d+ \|.*) \|$", PAGE.read_text(), re.M)
    return [dict(zip(COLUMNS, re.split(r" \| ", line), strict=True)) for line in lines]


TABLE = table()


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_row_of_the_specification_is_there_once() -> None:
    assert sorted(line["row"] for line in TABLE) == sorted(ROWS)


def test_every_row_stands_in_its_section() -> None:
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        named = re.findall(r"^\| ([A-Z])\d+ \|", part, re.M)
        assert set(named) == {part[0]}


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line["row"])
def test_a_row_names_files_and_tests_that_exist_and_says_what_is_missing(
    line: dict[str, str],
) -> None:
    assert line["state"] in STATES
    for path in quoted(line["where"]):
        assert (ROOT / path).is_file(), f"{path} does not exist"
    for test in quoted(line["test"]):
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), f"{path} does not exist"
        assert re.search(rf"^\s*def {re.escape(name)}\(", (ROOT / path).read_text(), re.M), test
    has_test, has_place = bool(quoted(line["test"])), bool(quoted(line["where"]))
    is_there = line["state"] != "not yet"
    assert has_test == has_place == is_there, "a place and a test, or neither"
    assert (line["missing"] == NOTHING) == (line["state"] == "done")


def test_no_other_file_is_named_on_the_page() -> None:
    paths = [text.partition("::")[0] for text in quoted(PAGE.read_text())]
    for path in paths:
        if re.search(r"\.\w+$", path):
            assert (ROOT / path).is_file(), f"{path} does not exist"


# Words that a reader would have to learn, or that sound odd; what to say instead.
WORDS = {
    "anew": "again",
    "ballot": "answer",
    "breach": "violation",
    "dear": "costly",
    "dearer": "costlier",
    "detective": "diagnoser",
    "goes on": "continues",
    "heed": "handle",
    "in force": "current",
    "mend": "repair",
    "oddities": "warnings",
    "ready?": "data readiness",
    "silent groups": "zero-variance groups",
    "told of": "reported",
    "trouble": "problem",
    "wish": "command",
}
SOURCES = ("apps", "measures", "workers")


_MARKUP = re.compile(r"{#.*?#}|{%.*?%}|{{.*?}}|<script.*?</script>|<[^>]+>", re.S)


def said() -> Iterator[tuple[str, str]]:
    """(where, text) of every page, module name and public docstring."""
    for path in sorted((ROOT / "templates").rglob("*.html")):
        yield str(path.relative_to(ROOT)), _MARKUP.sub(" ", path.read_text())
    for path in sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")):
        where = str(path.relative_to(ROOT))
        yield where, path.stem.replace("_", " ")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                name = getattr(node, "name", "module")
                if not name.startswith("_"):
                    yield f"{where}: {name}", ast.get_docstring(node) or ""


def test_no_page_module_or_public_docstring_uses_a_word_of_the_list():
    listed = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in WORDS), re.I)
    found = [
        f"{where}: '{match[0]}', say {WORDS[match[0].lower()]}"
        for where, text in said()
        if (match := listed.search(" ".join(text.split())))
    ]
    assert found == []
