"""What the pages of writing work show, prepared for their templates.

An author's name is for admins alone, as a voter's is; to others it is "the author".
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Project, Role, User
from apps.labeling.forms.writing import PASS_ON_REASONS
from apps.labeling.models import Slot, WritingBatch, WrittenDraft, WrittenText, WrittenVersion
from apps.labeling.rendering import text_html
from apps.labeling.screens.label import DiffLine, Turn, changed_lines, turns_shown
from apps.labeling.selectors import writing as reads
from apps.labeling.services.results import lease_key
from apps.labeling.services.writing import LONGEST_REASON, may_review, warning_words
from apps.labeling.texts import excerpt

TONES = {"waiting": "warn", "accepted": "good", "rejected": "bad", reads.WRITING: ""}
STATE_WORDS = {
    "open": _("open"),
    reads.WRITING: _("being written"),
    "waiting": _("waiting for review"),
    "accepted": _("accepted"),
    "rejected": _("sent back"),
    "withdrawn": _("withdrawn"),
}


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text in a list."""

    text: WrittenText
    asked: str
    written: str
    state: str
    words: str
    tone: str
    length: int
    who: User | None


def rows_of(texts: Iterable[WrittenText]) -> list[TextRow]:
    listed = list(texts)
    bodies = reads.current_bodies(listed)
    return [_row(text, bodies.get(text.pk)) for text in listed]


def _row(text: WrittenText, version: WrittenVersion | None) -> TextRow:
    state = reads.state_of(text)
    body = version.body if version else ""
    return TextRow(
        text=text,
        asked=excerpt(text.slot.task.prompt.brief),
        written=excerpt([{"role": "assistant", "content": body}]) if body else "",
        state=state,
        words=str(STATE_WORDS[state]),
        tone=TONES.get(state, ""),
        length=len(body),
        who=text.author or (text.slot.annotator if state == reads.WRITING else None),
    )


def editor_context(
    text: WrittenText,
    *,
    user: User,
    typed: str | None = None,
    number: int | None = None,
    notice: str = "",
    confirm: bool = False,
    newer: WrittenDraft | None = None,
) -> dict[str, Any]:
    """The context of `write.html` for a text in one's hands.

    typed, number: what the person had entered, and the draft their page had seen, given back when
    it could not be stored; newer: the draft that stands in the way.
    """
    draft = reads.draft_of(text=text, author=user)
    versions = reads.versions_of(text)
    last = versions[-1] if versions and text.state == WrittenText.State.REJECTED else None
    seen = draft.number if draft and number is None else number
    body = (draft.body if draft else "") if typed is None else typed
    slot, batch = text.slot, text.batch
    stamp = lease_key(slot.pk, user.pk, slot.leased_at) if slot.leased_at else f"{slot.pk}"
    return _asked(text) | {
        "page_title": title_of(batch),
        "nav": "write",
        "text": text,
        "batch": batch,
        "body": body,
        "draft_number": seen or 0,
        "draft": draft,
        "newer": newer,
        "editor": secrets.token_hex(8),
        "key": f"{stamp}.{text.n_versions}",
        "returned": last,
        "changes": changed_lines(last.body, body) if last else [],
        "notice": notice,
        "confirm": confirm,
        "pass_on_reasons": PASS_ON_REASONS,
    }


def title_of(batch: WritingBatch) -> str:
    return gettext("Write a prompt") if batch.kind == "prompts" else gettext("Write an answer")


def _asked(text: WrittenText) -> dict[str, Any]:
    """The prompt, and the batch's instruction where that is not the same."""
    batch = text.batch
    prompt: list[Turn] = []
    if batch.kind != WritingBatch.Kind.PROMPTS:
        prompt = turns_shown(text.slot.task.prompt.brief)
    return {
        "prompt": prompt,
        "conversation": len(prompt) > 1,
        "instruction": text_html(batch.instruction) if batch.instruction else "",
    }


@dataclass(frozen=True, slots=True)
class VersionShown:
    """A version with what changed since the one before it."""

    version: WrittenVersion
    html: SafeString
    changes: Sequence[DiffLine]
    by: str
    reviewed_by: str
    warnings: list[str]


def text_context(
    text: WrittenText,
    *,
    user: User,
    role: str,
    project: Project,
    notice: str = "",
    typed: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The context of `written.html`: a text with its versions, and the form of who may review."""
    versions = reads.versions_of(text)
    named = role == Role.ADMIN
    shown, before = [], ""
    for version in versions:
        shown.append(
            VersionShown(
                version,
                text_html(version.body),
                changed_lines(before, version.body) if before else [],
                _called(version.author, text, user, named, edited=version.edits_id is not None),
                _called(version.reviewed_by, text, user, named, edited=True)
                if version.reviewed_by
                else "",
                [warning_words(one) for one in version.warnings],
            )
        )
        before = version.body
    reviewing = (
        text.state == WrittenText.State.WAITING
        and text.author_id != user.pk
        and may_review(batch=text.batch, role=role)
    )
    state = reads.state_of(text)
    return _asked(text) | {
        "page_title": gettext("Text %(number)s") % {"number": text.pk},
        "nav": "write" if role == Role.ANNOTATOR else "writing",
        "text": text,
        "batch": text.batch,
        "state_words": STATE_WORDS[state],
        "tone": TONES.get(state, ""),
        "versions": shown[::-1],
        "current": shown[-1] if shown else None,
        "reviewing": reviewing,
        "own": text.author_id == user.pk,
        "notice": notice,
        "typed": typed or {},
        "longest_reason": LONGEST_REASON,
        "n_waiting": reads.reviewable(project=project, user=user, role=role).count(),
        "skips": list(text.slot.task.skips.exclude(reason="").values_list("reason", flat=True))
        if role != Role.ANNOTATOR
        else [],
    }


def _called(
    person: User | None, text: WrittenText, user: User, named: bool, *, edited: bool
) -> str:
    if person is None:
        return ""
    if person == user:
        return gettext("you")
    if named:
        return str(person)
    return gettext("a reviewer") if edited else gettext("the author")


def is_held(text: WrittenText, user: User) -> bool:
    return text.slot.state == Slot.State.LEASED and text.slot.annotator_id == user.pk
