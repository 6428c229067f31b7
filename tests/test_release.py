"""The tools of a release: silence of the vulnerability service is no answer."""

import json
from typing import Any

import pytest

from tests.system import release

WANTED = {("django", "5.2.19"), ("nh3", "0.3.7")}
FINE: dict[str, Any] = {"name": "Django", "version": "5.2.19", "vulns": []}
HOLE = {"id": "PYSEC-2026-1", "fix_versions": ["0.3.8"], "aliases": [], "description": ""}


def told(*packages: dict[str, Any]) -> release.Answer:
    return release.answer_of(WANTED, [json.dumps({"dependencies": [*packages], "fixes": []})])


def test_no_hole_is_known_only_where_every_package_was_answered_for() -> None:
    answer = told(FINE, {"name": "nh3", "version": "0.3.7", "vulns": []})
    assert (answer.status, answer.asked) == (0, 2)
    assert release.said("web", answer) == "web: no hole is known in 2 packages"


@pytest.mark.parametrize(
    "packages",
    [
        [FINE, {"name": "nh3", "skip_reason": "Dependency not found on PyPI: nh3 (0.3.7)"}],
        [FINE],
        [],
    ],
)
def test_what_could_not_be_asked_is_said_and_fails(packages: list[dict[str, Any]]) -> None:
    answer = told(*packages)
    assert answer.status == release.NOT_ASKED
    assert "could not be asked about" in release.said("web", answer)
    assert "no hole is known" not in release.said("web", answer)


def test_no_output_is_no_answer() -> None:
    assert release.answer_of(WANTED, [""]).status == release.NOT_ASKED
    assert release.answer_of(set(), [""]).status == release.NOT_ASKED


def test_a_hole_is_named_with_what_repairs_it() -> None:
    answer = told(FINE, {"name": "nh3", "version": "0.3.7", "vulns": [HOLE]})
    assert answer.status == release.HOLES
    assert release.said("web", answer) == "web: nh3 0.3.7: PYSEC-2026-1, fixed in 0.3.8"


def test_a_bill_that_lacks_a_package_or_has_another_version_is_found() -> None:
    bill = {"components": [{"name": "Django", "version": "5.2.19"}]}
    assert release.unnamed(WANTED, bill) == {"nh3"}
    bill["components"].append({"name": "nh3", "version": "0.3.6"})
    assert release.unnamed(WANTED, bill) == {"nh3"}


@pytest.mark.parametrize("side", release.LOCKS)
def test_every_line_of_a_lock_file_is_read(side: str) -> None:
    text = release.LOCKS[side].read_text()
    lines = [line for line in text.splitlines() if line[:1].isalnum()]
    assert len(lines) == len(release.locked(text))
    lists = release.one_version_each(side)
    assert {pair for one in lists for pair in one.items()} == release.packages(side)
    assert release.locked(text) <= release.packages(side)
