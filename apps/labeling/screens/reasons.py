"""What a page shows beside a reason for having no pair: the text to read, the round to pass."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling import selectors, services
from apps.labeling.models import Guideline
from apps.labeling.rendering import text_html
from apps.labeling.screens.changes import changed_lines
from apps.labeling.services import NothingReason


@dataclass(frozen=True, slots=True)
class Look:
    """How a reason is shown in a few words: an icon, a badge's tone, the words."""

    icon: str
    tone: str
    words: str


LOOKS = {
    "paused": Look("pause", "warn", "paused"),
    "guideline": Look("book-open", "warn", "guidelines to read"),
    "qualification": Look("clipboard-check", "warn", "not qualified yet"),
    "daily_cap": Look("circle-check", "good", "done for today"),
    "held": Look("hourglass", "", "others hold the rest"),
    "audits_done": Look("circle-check", "good", "audits done"),
    "yours_done": Look("circle-check", "good", "own part done"),
    "all_done": Look("circle-check", "good", "everything is labeled"),
    "empty": Look("inbox", "", "nothing to label yet"),
}


def context_of(reason: NothingReason, *, project: Project, annotator: User) -> dict[str, Any]:
    """What `_nothing.html` needs besides the reason itself."""
    more: dict[str, Any] = {"look": LOOKS[reason.code]}
    if reason.code == "guideline":
        more |= reading(project=project, user=annotator)
    if reason.code == "qualification":
        more["qualification"] = services.qualification_of(project=project, user=annotator)
    if reason.code == "daily_cap":
        more["opens_at"] = _next_day()
    return more


def _next_day() -> datetime:
    """When the caps of the day begin anew: midnight UTC."""
    now = timezone.now()
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


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
