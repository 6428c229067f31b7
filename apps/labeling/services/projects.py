"""Starting a project, its labeling settings, its guidelines."""

from dataclasses import fields
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import IntegrityError, transaction
from django.db.models import Max

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.common.errors import DomainError
from apps.labeling.models import Guideline, LabelingSettings
from measures.voting import Rule

FIRST_GUIDELINE = """\
Read the prompt, then both answers to the end. Choose the answer that would serve the person who \
asked better.

- **Correct beats polished.** A well-written wrong answer loses to a plain right one.
- **Length is not a merit.** Prefer the shorter answer when both say the same.
- Choose **Tie** only when you would be equally happy with either.
- Choose **Both are bad** when you would send neither.
- **Skip** what you cannot judge; someone else gets it.
"""
_LONGEST_GUIDELINE = 100_000


# (least, most) of each number; shares are fractions, the rest whole
_WHOLE = {
    "overlap": (1, 50),
    "max_overlap": (1, 50),
    "least_votes": (1, 50),
    "least_agreeing": (1, 50),
    "lease_seconds": (30, 86_400),
}
_SHARES = {"least_share": (0.01, 1.0), "random_share": (0.01, 1.0)}
_SWITCHES = ("show_tie", "show_both_bad", "show_strength", "show_rationale")


def project_create(
    *,
    slug: str,
    name: str,
    created_by: User,
    description: str = "",
    guideline: str = FIRST_GUIDELINE,
    **labeling: Any,
) -> Project:
    """A project with its settings and first guideline; its creator becomes its admin.

    `labeling` overrides defaults of LabelingSettings. Errors: bad or taken slug (field `slug`),
    empty name, and those of `labeling_settings_update`.
    """
    slug, name = slug.strip(), name.strip()
    try:
        validate_slug(slug)
    except ValidationError:
        raise DomainError(
            "Use letters, digits, - and _ only: the short name is part of the address.",
            field="slug",
        ) from None
    if len(slug) > 60:
        raise DomainError("The short name has at most 60 characters.", field="slug")
    if not name or len(name) > 120:
        raise DomainError("Give the project a name of at most 120 characters.", field="name")
    with transaction.atomic():
        try:
            with transaction.atomic():
                project = Project.objects.create(
                    slug=slug, name=name, description=description, created_by=created_by
                )
        except IntegrityError:
            raise DomainError(
                f"There is already a project called {slug!r}.", field="slug", code="taken"
            ) from None
        Membership.objects.create(project=project, user=created_by, role=Role.ADMIN)
        LabelingSettings.objects.create(project=project)
        if labeling:
            labeling_settings_update(project=project, by=created_by, **labeling)
        Guideline.objects.create(
            project=project, version=1, body=guideline, is_major=True, created_by=created_by
        )
        _audit(project, created_by, "project.created", slug)
    return project


def labeling_settings_update(*, project: Project, by: User, **changes: Any) -> LabelingSettings:
    """Change how a project labels; what is not named stays.

    Existing decisions keep the rule they were made under until they are refreshed or voted on.
    Errors name the field: unknown, out of bounds, or a rule that could never accept anything.
    """
    with transaction.atomic():
        current, _ = LabelingSettings.objects.select_for_update().get_or_create(project=project)
        before = {name: getattr(current, name) for name in changes if hasattr(current, name)}
        for name, value in changes.items():
            setattr(current, name, _checked(name, value))
        _check_together(current)
        current.save()
        changed = {
            name: [before[name], getattr(current, name)]
            for name in changes
            if before[name] != getattr(current, name)
        }
        if changed:
            _audit(project, by, "labeling.settings_changed", "", changed)
    return current


def _checked(name: str, value: Any) -> Any:
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise DomainError("This is either on or off.", field=name)
        return value
    if name not in _WHOLE and name not in _SHARES:
        raise DomainError(f"There is no setting called {name!r}.", field=name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DomainError("This must be a number.", field=name)
    if name in _WHOLE and value != int(value):
        raise DomainError("This must be a whole number.", field=name)
    low, high = (_WHOLE | _SHARES)[name]
    if not low <= value <= high:
        raise DomainError(f"This must lie between {low:g} and {high:g}.", field=name)
    return value


def _check_together(current: LabelingSettings) -> None:
    if current.max_overlap < current.overlap:
        raise DomainError(
            f"At most {current.max_overlap} votes, but {current.overlap} are asked for at once.",
            field="max_overlap",
        )
    try:
        rule_of(current)
    except ValueError as error:
        raise DomainError(f"This rule cannot work: {error}.", field="max_overlap") from None


def rule_of(current: LabelingSettings) -> Rule:
    """The project's decision rule, as `measures.voting` reads it."""
    values = {f.name: getattr(current, f.name) for f in fields(Rule) if f.name != "max_votes"}
    return Rule(**values, max_votes=current.max_overlap)


def guideline_publish(
    *, project: Project, body: str, by: User, is_major: bool = False
) -> Guideline:
    """The next version of the guidelines; earlier versions stay readable.

    Publishing the current text again changes nothing and returns the current version.
    """
    body = body.replace("\r\n", "\n").strip() + "\n"
    if body == "\n":
        raise DomainError("The guidelines are empty.", field="body")
    if len(body) > _LONGEST_GUIDELINE:
        raise DomainError(f"At most {_LONGEST_GUIDELINE:,} characters.", field="body")
    with transaction.atomic():
        # The project row serialises publishers, so no version is given out twice.
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        newest = Guideline.objects.filter(project=project).order_by("-version").first()
        if newest is not None and newest.body == body:
            return newest
        last = Guideline.objects.filter(project=project).aggregate(n=Max("version"))["n"] or 0
        published = Guideline.objects.create(
            project=project, version=last + 1, body=body, is_major=is_major, created_by=by
        )
        _audit(project, by, "guideline.published", f"v{published.version}", {"major": is_major})
    return published


def _audit(
    project: Project, by: User, action: str, subject: str, details: dict[str, Any] | None = None
) -> None:
    AuditEvent.objects.create(
        project=project, actor=by, action=action, subject=subject, details=details or {}
    )
