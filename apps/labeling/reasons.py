"""What a page shows beside a reason for having no pair: the text to read, the round to pass."""

from typing import Any

from apps.accounts.models import Project, User
from apps.labeling import selectors, services
from apps.labeling.changes import changed_lines
from apps.labeling.models import Guideline
from apps.labeling.rendering import text_html
from apps.labeling.services import NothingReason


def context_of(reason: NothingReason, *, project: Project, annotator: User) -> dict[str, Any]:
    """What `_nothing.html` needs besides the reason itself."""
    if reason.code == "guideline":
        return reading(project=project, user=annotator)
    if reason.code == "qualification":
        return {"qualification": services.qualification_of(project=project, user=annotator)}
    return {}


def reading(*, project: Project, user: User) -> dict[str, Any]:
    """The current guidelines, and what changed since the version this person acknowledged."""
    current = selectors.guideline_current(project=project)
    read = selectors.guideline_read(project=project, user=user)
    if current is None:
        return {}
    return {
        "guideline": current,
        "guideline_html": text_html(current.body),
        "read_version": read.version if read else 0,
        "changes": changes_since(read, current),
    }


def changes_since(old: Guideline | None, new: Guideline) -> list[Any]:
    """Empty where there is nothing to compare with."""
    return changed_lines(old.body, new.body) if old is not None and old.pk != new.pk else []
