"""A project's constitution: saved as versions, and taken by runs that criticise and rewrite."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Unprocessable
from apps.common.json_limits import json_check
from apps.training.models import Constitution
from apps.training.selectors.constitution import (
    constitution_current,
    constitution_get,
)
from workers.config import recipe_config, recipe_fields
from workers.config.rewards import needs_model, reward_errors

MOST_PRINCIPLES = 50
LONGEST_NAME, LONGEST_TEXT, LONGEST_NOTE = 80, 2_000, 500
NUMBER = "constitution"  # setting of a run: the version that its principles are from


def constitution_save(
    *,
    project: Project,
    principles: Sequence[Mapping[str, Any]],
    hard_rules: Mapping[str, Any],
    note: str,
    user: User,
    over: int | None = None,
) -> Constitution:
    """The next version; the current one where nothing but the note differs.

    principles: 1 to 50 of {"name", "text"}, whose names differ in more than case. hard_rules: a
    reward that blocks answers (docs/rewards.md), or {}. over: the version that was changed, 0 where
    there was none. Raises `DomainError` naming the field, such as principles[2].text, and
    `Conflict` (superseded) where somebody saved another version after `over`.
    """
    said = _principles(principles)
    rules = _hard_rules(hard_rules)
    note = _text(note, "note", LONGEST_NOTE, least=0)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        current = constitution_current(project=project)
        newest = current.number if current else 0
        if over is not None and over != newest:
            raise Conflict(
                f"Version {newest} was saved in the meantime. Look at it, and save yours after it.",
                code="superseded",
            )
        if current and (current.principles, current.hard_rules) == (said, rules):
            return current
        made = Constitution.objects.create(
            project=project,
            number=newest + 1,
            principles=said,
            hard_rules=rules,
            note=note,
            created_by=user,
            created_name=str(user)[:150],
        )
        audit_record(
            action="constitution.saved",
            actor=user,
            project=project,
            subject=str(made.number),
            details={"version": made.number, "principles": len(said), "note": note},
        )
    return made


def constitution_applied(*, project: Project, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run of `generate` with the constitution's principles, their names, its
    number, and its hard rules as the filter where there is none; as it is where the run rewrites
    nothing, was given principles of its own, or the project has no constitution.

    A configuration that names a version has that version's principles, or says none. Raises
    `Unprocessable` where it has others, and where there is no such version.
    """
    given = dict(config)
    chosen = recipe_config("generate", config)
    if chosen.get("opponent") != "revision":
        return given
    named = chosen.get(NUMBER)
    own = _own_principles(chosen.get("principles"))
    if (own and named is None) or not isinstance(named, int | None):
        return given
    try:
        found = (
            constitution_get(project=project, number=named)
            if named is not None
            else constitution_current(project=project)
        )
    except Missing as error:
        raise Unprocessable(
            error.message, code="unknown_constitution", field=f"config.{NUMBER}"
        ) from error
    if found is None:
        return given
    texts = [one["text"] for one in found.principles]
    if own and own != texts:
        raise Unprocessable(
            f"These are not the principles of version {found.number} of the constitution. Leave "
            "the version empty, or the principles.",
            code="other_principles",
            field="config.principles",
        )
    known = {field.name for field in recipe_fields("generate")}
    told = {
        "principles": texts,
        "principle_names": [one["name"] for one in found.principles],
        NUMBER: found.number,
    }
    given |= {name: value for name, value in told.items() if name in known}
    if found.hard_rules and not chosen.get("filter"):
        given["filter"] = found.hard_rules
    return given


def _own_principles(given: Any) -> list[str]:
    """What a person gave; nothing where it is the recipe's default, as a form sends it."""
    texts = list(given) if isinstance(given, list | tuple) else []
    default = next(one.default for one in recipe_fields("generate") if one.name == "principles")
    return [] if texts == list(default) else texts


def _principles(given: Any) -> list[dict[str, str]]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= MOST_PRINCIPLES:
        raise DomainError(
            f"A constitution has 1 to {MOST_PRINCIPLES} principles.",
            code="bad_principles",
            field="principles",
        )
    found: list[dict[str, str]] = []
    seen: set[str] = set()
    for place, one in enumerate(given):
        where = f"principles[{place}]"
        if not isinstance(one, Mapping) or set(one) - {"name", "text"}:
            raise DomainError(
                "A principle is an object of name and text.", code="bad_principles", field=where
            )
        name = _text(one.get("name"), f"{where}.name", LONGEST_NAME)
        if name.casefold() in seen:
            raise DomainError(
                f"Two principles are called '{name}'.",
                code="bad_principles",
                field=f"{where}.name",
            )
        seen.add(name.casefold())
        text = _text(one.get("text"), f"{where}.text", LONGEST_TEXT)
        found.append({"name": name, "text": text})
    return found


def _text(given: Any, field: str, most: int, *, least: int = 1) -> str:
    text = given.strip() if isinstance(given, str) else None
    if text is None or not least <= len(text) <= most or "\x00" in text:
        raise DomainError(
            f"Must be a text of {least} to {most:,} characters.", code="bad_text", field=field
        )
    return text


def _hard_rules(given: Any) -> dict[str, Any]:
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise DomainError(
            "Hard rules are an object, written as a reward.",
            code="bad_hard_rules",
            field="hard_rules",
        )
    rules = dict(given)
    json_check(rules, field="hard_rules")
    errors = reward_errors(rules, "hard_rules")
    if not errors and needs_model(rules):
        errors = ["hard_rules: a reward model blocks nothing"]
    if errors:
        raise DomainError(errors[0], code="bad_hard_rules", field="hard_rules", details=errors)
    return rules
