"""Starting a project, its labeling settings, its guidelines."""

from dataclasses import fields
from typing import Any

from django.db import transaction

from apps.accounts import services as accounts
from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Consensus, DecideBy, Guideline, LabelingSettings, Slot
from apps.labeling.services.redeciding import (
    REDONE_AT_ONCE,
    RULE_FIELDS,
    decisions_count,
    decisions_redo,
)
from apps.labeling.services.settings_checks import setting_checked, settings_check_together
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


@transaction.atomic
def project_create(
    *,
    slug: str,
    name: str,
    created_by: User,
    description: str = "",
    guideline: str = FIRST_GUIDELINE,
    **labeling: Any,
) -> Project:
    """A project ready for labeling; its creator becomes its admin.

    `labeling` overrides defaults of LabelingSettings. Errors are those of
    `accounts.services.project_create` and `labeling_settings_update`.
    """
    project = accounts.project_create(
        name=name, by=created_by, slug=slug.strip(), description=description
    )
    labeling_set_up(project=project, guideline=guideline, by=created_by)
    if labeling:
        labeling_settings_update(project=project, by=created_by, **labeling)
    return project


def labeling_set_up(
    *, project: Project, guideline: str = FIRST_GUIDELINE, by: User | None = None
) -> LabelingSettings:
    """Give a project its settings row and first guideline, where it has none yet."""
    settings, _ = LabelingSettings.objects.get_or_create(project=project)
    if not Guideline.objects.filter(project=project).exists():
        Guideline.objects.get_or_create(
            project=project,
            version=1,
            defaults={"body": guideline, "is_major": True, "created_by": by},
        )
    return settings


def labeling_settings_update(
    *, project: Project, by: User, redo: bool = True, **changes: Any
) -> LabelingSettings:
    """Change how a project labels; what is not named stays.

    When the rule changes, comparisons that are decided already are decided anew: at once in a
    project of up to REDONE_AT_ONCE, else in the background (`decisions_behind` finds them), or by
    the caller, who then says redo=False. Errors
    name the field: unknown, out of bounds, a rule that could never accept anything, a model that
    was not fitted, or settings that do not fit together (see `settings_checks`).
    """
    with transaction.atomic():
        current, _ = LabelingSettings.objects.select_for_update().get_or_create(project=project)
        before = {name: getattr(current, name) for name in changes if hasattr(current, name)}
        for name, value in changes.items():
            setattr(current, name, setting_checked(name, value))
        settings_check_together(current, rule_of)
        if current.decide_by != before.get("decide_by", current.decide_by):
            _fitted_check(current)
        current.save()
        if current.gold_share:
            # From now on each annotator gets every gold pair in a slot made for them.
            Slot.objects.filter(project=project, kind=Slot.Kind.GOLD, state=Slot.State.FREE).update(
                state=Slot.State.WITHDRAWN
            )
        changed = {
            name: [before[name], getattr(current, name)]
            for name in changes
            if before[name] != getattr(current, name)
        }
        if changed:
            accounts.audit_record(
                action="labeling.settings_changed", actor=by, project=project, details=changed
            )
    is_small = redo and decisions_count(project=project) <= REDONE_AT_ONCE
    if is_small and changed.keys() & RULE_FIELDS:
        decisions_redo(project=project)
    return current


def _fitted_check(current: LabelingSettings) -> None:
    """A model decides only once it was fitted to the project's own votes."""
    if current.decide_by == DecideBy.VOTES:
        return
    fitted = Consensus.objects.filter(project=current.project_id).first()
    if fitted is None or fitted.method != current.decide_by:
        raise DomainError(
            f"{DecideBy(current.decide_by).label} has not been fitted to this project’s votes yet. "
            "Choose it on the page Decisions, which fits it first.",
            code="not_fitted",
            field="decide_by",
        )


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
        published = Guideline.objects.create(
            project=project,
            version=newest.version + 1 if newest else 1,
            body=body,
            is_major=is_major,
            created_by=by,
        )
        accounts.audit_record(
            action="guideline.published",
            actor=by,
            project=project,
            subject=f"v{published.version}",
            details={"major": is_major},
        )
    return published
