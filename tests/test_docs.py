"""Documentation is tested: what the code reads and offers is written down."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment_names() -> set[str]:
    """Names read through `apps.common.environment`, wherever it is used."""
    names = set()
    for path in [*ROOT.glob("config/*.py"), *ROOT.glob("apps/**/*.py")]:
        names |= set(
            re.findall(
                r"\benv\.(?:text|flag|number|choice|words|token|networks)\(\s*\"([A-Z_]+)\"",
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
