"""Starting a project, its labeling settings, its guidelines."""

import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from typing import Any

from django.db import connection, transaction
from django.db.models import TextChoices

from apps.accounts import services as accounts
from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.common.models import longest
from apps.labeling.models import (
    MOST_POINTS,
    Consensus,
    DecideBy,
    Guideline,
    LabelingSettings,
    Slot,
    Task,
)
from apps.labeling.services import bulk_statements as bulk_sql
from apps.labeling.services import statements as sql
from apps.labeling.services.exhausting import comparisons_settle
from apps.labeling.services.notices import guideline_tell
from apps.labeling.services.redeciding import (
    REDONE_AT_ONCE,
    RULE_FIELDS,
    decisions_count,
    decisions_redo,
)
from measures.phrases import Phrases
from measures.voting import Rule

# What each labeling setting may be, and what must fit together; errors name the field.

# (least, most) of each number; shares are fractions, the rest whole
_WHOLE = {
    "grade_low": (-100, 100),
    "grade_high": (-100, 110),
    "overlap": (1, 50),
    "max_overlap": (1, 50),
    "least_votes": (1, 50),
    "least_agreeing": (1, 50),
    "lease_seconds": (30, 86_400),
    "run_lease_seconds": (30, 86_400),
    "skips_to_review": (1, 50),
    "daily_cap": (0, 100_000),
    "votes_quota": (0, 1_000_000_000),
    "completion_votes": (0, 100_000),
    "audit_days": (1, 365),
    "sensitive_cap": (0, 100_000),
    "fast_ms": (0, 60_000),
    "qualification_pairs": (0, 200),
    "qualification_attempts": (1, 50),
    "qualification_cooldown_minutes": (0, 43_200),
}
SHARES = {
    "least_share": (0.01, 1.0),
    "random_share": (0.01, 1.0),
    "gold_share": (0.0, 0.5),
    "repeat_share": (0.0, 0.5),
    "audit_share": (0.0, 0.5),
    "audit_rate": (0.0, 1.0),
    "qualification_pass": (0.01, 1.0),
    "least_posterior": (0.51, 0.999),
    "vote_price": (0.0, 1_000.0),
    "label_budget": (0.0, 1e9),
}
_SWITCHES = (
    "judge_first",
    "stop_early",
    "show_tie",
    "show_both_bad",
    "show_strength",
    "show_rationale",
    "require_rationale",
    "require_criteria",
    "show_flags",
    "show_improve",
    "ask_outcome",
    "ask_first_error",
    "ask_steps",
    "show_costs",
    "acknowledge_guidelines",
    "show_rulings",
    "show_gold",
)
# (most entries, most characters of one)
_LISTS = {"reasons": (12, 40), "constraint_phrases": (1000, 200), "sensitive_topics": (200, 200)}
_CHOICES: dict[str, type[TextChoices]] = {"decide_by": DecideBy, "task_kind": Task.Kind}
_TEXTS = ("grade_low_label", "grade_high_label", "data_statement", "remarks_licence")
_CONTROLS = ("gold_share", "repeat_share", "audit_share")
_MOST_CONTROLS = 0.500001  # half, and the rounding of sums; the rest is work on the queue itself
_MOST_CRITERIA = 8
_LONGEST_LABEL = 60
_LONGEST_DEFINITION = 600
_KEY = re.compile(r"[a-z][a-z0-9_]{0,31}")


def setting_checked(name: str, value: Any) -> Any:
    """`value` as it is stored. `DomainError` for an unknown name or a value out of bounds."""
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise DomainError("This is either on or off.", field=name)
        return value
    if name in _LISTS:
        return _texts(name, value)
    if name in _CHOICES:
        if value not in _CHOICES[name].values:
            raise DomainError(f"This is one of {', '.join(_CHOICES[name].values)}.", field=name)
        return _CHOICES[name](value)
    if name in _TEXTS:
        return _line(name, value)
    if name == "due_on":
        return day_checked(value)
    if name == "currency":
        if not isinstance(value, str) or not re.fullmatch("[A-Z]{3}", value):
            raise DomainError("Three capital letters, such as EUR.", field=name)
        return value
    if name == "criteria":
        return _criteria(value)
    if name not in _WHOLE and name not in SHARES:
        raise DomainError(f"There is no setting called {name!r}.", field=name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DomainError("This must be a number.", field=name)
    low, high = (_WHOLE | SHARES)[name]
    if not low <= value <= high:  # also what is not a number at all
        raise DomainError(f"This must lie between {low:g} and {high:g}.", field=name)
    if name in _WHOLE and value != int(value):
        raise DomainError("This must be a whole number.", field=name)
    return value


def _line(name: str, value: Any) -> str:
    most = longest(LabelingSettings, name)
    if not isinstance(value, str) or "\x00" in value or len(value) > most:
        raise DomainError(f"A text of at most {most} characters is expected.", field=name)
    return value.strip()


def day_checked(value: Any) -> date | None:
    """A day, as a date or as 2026-11-30; nothing is none."""
    if isinstance(value, date) or not value:
        return value or None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise DomainError("This must be a day such as 2026-11-30.", field="due_on") from None


def too_few_votes(most: int, needed: int) -> str:
    return f"Maximum votes ({most}) is below the votes that the rule needs ({needed})."


def settings_check_together(current: LabelingSettings, rule: Any) -> None:
    """rule: makes the decision rule of these settings; a ValueError says why there is none."""
    if not current.grade_low < current.grade_high < current.grade_low + MOST_POINTS:
        raise DomainError(
            f"A scale has 2 to {MOST_POINTS} points, from the lowest grade up.", field="grade_high"
        )
    if current.max_overlap < current.overlap:
        raise DomainError(
            f"At most {current.max_overlap} votes, but {current.overlap} are asked for at once.",
            field="max_overlap",
        )
    needed = max(current.least_votes, current.least_agreeing)
    if current.max_overlap < needed:
        raise DomainError(too_few_votes(current.max_overlap, needed), field="max_overlap")
    try:
        _: Rule = rule(current)
    except ValueError as error:
        raise DomainError(f"This rule cannot work: {error}.", field="max_overlap") from None
    controls = {name: getattr(current, name) for name in _CONTROLS}
    # in the order of the database's own check, so that both agree to the last bit
    if current.gold_share > _MOST_CONTROLS - current.repeat_share - current.audit_share:
        raise DomainError(
            f"Gold pairs, repeats and re-votes would take {sum(controls.values()):.0%} of what is "
            f"handed out; they must leave {1 - _MOST_CONTROLS:.0%} for the queue.",
            field=max(controls, key=lambda name: controls[name]),
        )
    if current.require_criteria and not current.criteria:
        raise DomainError("There is no criterion to require: name one.", field="criteria")
    if current.require_rationale and not current.show_rationale:
        raise DomainError(
            "A reason cannot be required while none is asked for.", field="require_rationale"
        )


def _texts(name: str, value: Any) -> list[str]:
    most, longest = _LISTS[name]
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise DomainError("This must be a list of texts.", field=name)
    texts = [text.strip() for text in value]
    for number, text in enumerate(texts, start=1):
        if not text or "\x00" in text:
            raise DomainError(f"Entry {number} is empty or cannot be stored.", field=name)
        if len(text) > longest:
            raise DomainError(
                f"Entry {number} has {len(text)} characters; at most {longest}.", field=name
            )
        if text in texts[: number - 1]:
            raise DomainError(f"“{text}” is there twice.", field=name)
    if len(texts) > most:
        raise DomainError(f"{len(texts):,} entries; at most {most:,}.", field=name)
    if name == "constraint_phrases":
        try:
            Phrases(texts)
        except ValueError as error:
            raise DomainError(f"{str(error).capitalize()}.", field=name) from None
    return texts


def _criteria(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value):
        raise DomainError(
            "This must be a list of criteria, each a key and a label.", field="criteria"
        )
    rows: list[dict[str, str]] = []
    for number, row in enumerate(value, start=1):
        known_parts = {"key", "label"} <= set(row) <= {"key", "label", "definition"}
        if not known_parts or not all(isinstance(text, str) for text in row.values()):
            raise DomainError(
                f"Criterion {number} needs a key and a label, and may have a definition.",
                field="criteria",
            )
        definition = " ".join(row.get("definition", "").split())
        if len(definition) > _LONGEST_DEFINITION or "\x00" in definition:
            raise DomainError(
                f"The definition of criterion {number} has at most {_LONGEST_DEFINITION} "
                "characters.",
                field="criteria",
            )
        key, label = row["key"].strip(), row["label"].strip()
        if not _KEY.fullmatch(key):
            raise DomainError(
                f"The key {key!r} of criterion {number}: small letters, digits and _, at most 32, "
                "a letter first.",
                field="criteria",
            )
        if not 0 < len(label) <= _LONGEST_LABEL or "\x00" in label:
            raise DomainError(
                f"Criterion {number} needs a label of 1 to {_LONGEST_LABEL} characters.",
                field="criteria",
            )
        for what, text in (("key", key), ("label", label)):
            if text in (known[what] for known in rows):
                raise DomainError(f"The {what} “{text}” is there twice.", field="criteria")
        rows.append(
            {"key": key, "label": label} | ({"definition": definition} if definition else {})
        )
    if len(rows) > _MOST_CRITERIA:
        raise DomainError(f"{len(rows)} criteria; at most {_MOST_CRITERIA}.", field="criteria")
    return rows


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


def task_kinds_of(projects: Sequence[Project]) -> dict[str, str]:
    """What each project asks, by primary key; pairs where nothing else was chosen."""
    chosen = LabelingSettings.objects.filter(project__in=projects)
    kinds = dict(chosen.values_list("project", "task_kind"))
    return {one.pk: str(kinds.get(one.pk) or Task.Kind.PAIR) for one in projects}


def task_kind_set(project: Project, kind: str) -> None:
    """What a new project asks, whatever it has from a project whose settings it copied."""
    kind = setting_checked("task_kind", kind)
    if kind != task_kinds_of([project])[project.pk]:
        LabelingSettings.objects.update_or_create(project=project, defaults={"task_kind": kind})


def labeling_settings_copy(source: Project, target: Project) -> None:
    """Give a new project the settings of another; a model of the voters is not copied, since it
    was fitted to the other's votes, so such a rule becomes the counted one."""
    current = LabelingSettings.objects.filter(project=source).first()
    if current is None:
        return
    current.pk = target.pk
    current.project = target
    current.decide_by = DecideBy.VOTES
    current.stop_early = False
    current._state.adding = True
    current.save(force_insert=True)


def labeling_settings_update(
    *, project: Project, by: User, redo: bool = True, apply_overlap: bool = False, **changes: Any
) -> LabelingSettings:
    """Change how a project labels; what is not named stays.

    apply_overlap: another number of votes per comparison holds for the open ones too, whose places
    are added or withdrawn; without it for what is imported from then on.

    When the rule changes, comparisons that are decided already are decided again: at once in a
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
        if current.data_statement != before.get("data_statement", current.data_statement):
            current.data_statement_version += 1  # who agreed to another text is asked again
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
            told = {
                name: [str(v) if isinstance(v, date) else v for v in both]
                for name, both in changed.items()
            }
            accounts.audit_record(
                action="labeling.settings_changed", actor=by, project=project, details=told
            )
    is_small = redo and decisions_count(project=project) <= REDONE_AT_ONCE
    if is_small and changed.keys() & RULE_FIELDS:
        decisions_redo(project=project)
    if apply_overlap and "overlap" in changed:
        _overlap_apply(current, by)
    if changed.keys() & set(sql.POLICY):
        comparisons_settle(project=project)
    return current


@transaction.atomic
def _overlap_apply(current: LabelingSettings, by: User) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            bulk_sql.OVERLAP_APPLIED,
            {
                "project": current.project_id,
                "base": current.overlap,
                "most": current.max_overlap,
            },
        )
        n, added, withdrawn = cursor.fetchone()
    accounts.audit_record(
        action="labeling.overlap_applied",
        actor=by,
        project=current.project,
        details={
            "votes": current.overlap,
            "comparisons": n,
            "places_added": added,
            "places_withdrawn": withdrawn,
        },
    )


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
        guideline_tell(published, by)
    return published
