"""Versions of a project's constitution, and what each changed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.training.models import Constitution

ADDED, REMOVED, REWORDED, RENAMED = "added", "removed", "reworded", "renamed"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a principle; `before` and `after`: its texts, of a renamed one its names."""

    what: str
    name: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A version with what it changed in the one before; the first one changed nothing."""

    row: Constitution
    changes: tuple[Change, ...]
    rules_changed: bool

    @property
    def rules_json(self) -> str:
        rules = self.row.hard_rules
        return json.dumps(rules, indent=2, ensure_ascii=False) if rules else ""


def constitution_current(*, project: Project) -> Constitution | None:
    """The newest version; None where a project has none."""
    return Constitution.objects.filter(project=project).order_by("-number").first()


def constitution_get(*, project: Project, number: int) -> Constitution:
    """Raises `Missing`."""
    found = Constitution.objects.filter(project=project, number=number).first()
    if found is None:
        raise Missing(f"There is no version {number} of the constitution.", field="constitution")
    return found


def constitution_versions(*, project: Project) -> list[Version]:
    """The newest first."""
    rows = list(Constitution.objects.filter(project=project).order_by("-number"))
    return [
        Version(
            row,
            changes_between(before, row) if before else (),
            before is not None and before.hard_rules != row.hard_rules,
        )
        for row, before in zip_longest(rows, rows[1:])
    ]


def changes_between(old: Constitution, new: Constitution) -> tuple[Change, ...]:
    """By the names of the principles; one with another name and the same text is renamed."""
    was, now = _by_name(old.principles), _by_name(new.principles)
    gone = {name: text for name, text in was.items() if name not in now}
    found = []
    for name, text in now.items():
        if name in was:
            if was[name] != text:
                found.append(Change(REWORDED, name, was[name], text))
            continue
        former = next((one for one, said in gone.items() if said == text), None)
        if former is None:
            found.append(Change(ADDED, name, after=text))
        else:
            del gone[former]
            found.append(Change(RENAMED, name, former, name))
    return (*found, *(Change(REMOVED, name, before=text) for name, text in gone.items()))


def _by_name(principles: Sequence[dict[str, str]]) -> dict[str, str]:
    return {one["name"]: one["text"] for one in principles}
