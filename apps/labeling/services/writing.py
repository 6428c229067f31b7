"""Writing work: batches, drafts, submitted texts, and their review by another person.

Who may have a place and for how long is the queue's business (`leasing`). A submitted text is a
version; a reviewer accepts it, accepts it with an edit (another version, of which they are the
author), or sends it back. Races are settled by the rows that are locked, membership before slot
before text, and by constraints: a version has one number and one verdict, and none by its author.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.models import longest, one_line
from apps.common.numbers import count
from apps.common.transactions import prepared_cursor, retried
from apps.labeling.models import (
    INSTRUCTION,
    Annotator,
    LabelingSettings,
    Prompt,
    Slot,
    Task,
    WritingBatch,
    WrittenDraft,
    WrittenText,
    WrittenVersion,
)
from apps.labeling.models.votes import AnyAnswer
from apps.labeling.personal_data import personal_data
from apps.labeling.services import statements as sql
from apps.labeling.services.answers import LONGEST_TIME, slot_lock, times_bounded
from apps.labeling.services.eligibility import LABELERS
from apps.labeling.services.images import RowImages
from apps.labeling.services.import_checks import images_check, with_images
from apps.labeling.services.leasing import WRITING_SECONDS, slot_release, writing_lock
from apps.labeling.services.loading import BadField, prompt_row_from
from apps.labeling.services.notices import text_returned_tell, texts_wait_tell, writing_tell
from apps.labeling.services.results import Lease
from apps.labeling.texts import MOST_CHARACTERS, fingerprint, loose_key
from measures.messages import Messages
from measures.phrases import Phrases

Kind, Review = WritingBatch.Kind, WritingBatch.Review
State, Verdict = WrittenText.State, WrittenVersion.Verdict
REVIEWERS = frozenset({Role.REVIEWER, Role.ENGINEER, Role.ADMIN})
MOST_PLACES = 5_000  # of one batch
RETURNED_FOR = timedelta(days=7)  # for which a text that was sent back is its author's
LONGEST_REASON = 1000
USUAL_MOST = 20_000
PHRASE = "phrase"
# What a scan finds, in the language of whoever reads it; the keys are those of `personal_data`.
FOUND = {
    "email": _("holds what looks like an e-mail address: %(what)s"),
    "phone": _("holds what looks like a phone number: %(what)s"),
    "iban": _("holds what looks like a bank account (IBAN): %(what)s"),
    "card": _("holds what looks like a card number: %(what)s"),
    "ssn": _("holds what looks like a US social security number: %(what)s"),
    "ip": _("holds what looks like an IP address: %(what)s"),
    "secret": _("holds what looks like a key or token: %(what)s"),
    PHRASE: _("contains the blocked phrase “%(what)s”"),
}


# --- batches ------------------------------------------------------------------------------------


@transaction.atomic
def writing_batch_create(
    *,
    project: Project,
    by: User | None,
    kind: str,
    name: str,
    instruction: str = "",
    prompts: Sequence[Mapping[str, Any]] = (),
    prompt_ids: Sequence[int] = (),
    n_prompts: int = 0,
    per_task: int = 1,
    topic: str = "",
    language: str = "",
    licence: str = "",
    least_characters: int = 1,
    most_characters: int = USUAL_MOST,
    review: str = Review.STAFF,
) -> WritingBatch:
    """Ask for answers to prompts (given as rows, or by id where they are in the project), each
    written by `per_task` people, or for `n_prompts` prompts.

    A row has `prompt` (a text or messages) and may have `topic`, `language`, `licence`, `group` and
    `id`. All rows or none: `DomainError` names the row and the field.
    """
    texts = {"name": name, "topic": topic, "language": language, "licence": licence}
    texts = {field: _short(field, value) for field, value in texts.items()}
    if not texts["name"]:
        raise DomainError(gettext("A name is needed."), field="name")
    instruction = instruction.replace("\r\n", "\n").strip()
    _length_check(instruction, 0, MOST_CHARACTERS, "instruction")
    if kind not in Kind.values:
        raise DomainError(f"A batch is of {' or '.join(Kind.values)}.", field="kind")
    if review not in Review.values:
        raise DomainError(f"One of {', '.join(Review.values)}.", field="review")
    if not 1 <= least_characters <= most_characters <= MOST_CHARACTERS:
        raise DomainError(
            f"At least 1, at most {MOST_CHARACTERS:,}, and no maximum under the minimum.",
            field="most_characters",
        )
    if not 1 <= per_task <= 100:
        raise DomainError("Between 1 and 100.", field="per_task")
    if kind == Kind.PROMPTS:
        if prompts or prompt_ids:
            raise DomainError("Prompts are what is to be written.", field="prompts")
        if not instruction:
            raise DomainError("Say what prompts are wanted.", field="instruction")
        if not 1 <= n_prompts <= MOST_PLACES:
            raise DomainError(f"Between 1 and {MOST_PLACES:,}.", field="n_prompts")
        row = {"prompt": instruction, "topic": topic, "language": language}
        asked = _prompts_stored(project, [row], texts, source=INSTRUCTION) * n_prompts
        per_task = 1  # a person may write several: each is a task of its own
    else:
        asked = _prompts_stored(project, prompts, texts, source=texts["name"])
        known = Prompt.objects.filter(project=project, pk__in=prompt_ids).order_by("pk")
        asked = list(dict.fromkeys([*asked, *known]))
        if not asked:
            raise DomainError("There is no prompt to write to.", field="prompts")
        if len(asked) * per_task > MOST_PLACES:
            raise DomainError(
                f"{len(asked) * per_task:,} texts; at most {MOST_PLACES:,} in one batch.",
                field="prompts",
            )
    batch = WritingBatch.objects.create(
        project=project,
        kind=kind,
        instruction=instruction,
        per_task=per_task,
        least_characters=least_characters,
        most_characters=most_characters,
        review=review,
        created_by=by,
        **texts,
    )
    n = _places_make(batch, asked)
    audit_record(
        action="writing.batch_created",
        actor=by,
        project=project,
        subject=batch.pk,
        details={"name": batch.name, "kind": str(kind), "texts": n, "review": str(review)},
    )
    writing_tell(project, n)
    return batch


def _short(field: str, value: str) -> str:
    tidy = value.strip()
    if "\x00" in tidy:
        raise DomainError(gettext("A NUL character cannot be stored."), field=field)
    most = longest(WritingBatch, field)
    if len(tidy) > most:
        raise DomainError(gettext("At most %(n)s characters.") % {"n": most}, field=field)
    return tidy


def _prompts_stored(
    project: Project, rows: Sequence[Mapping[str, Any]], texts: Mapping[str, str], *, source: str
) -> list[Prompt]:
    """The project's prompts of these rows, made where they are new; each once, in order."""
    images = RowImages(project, writes=True)
    wanted: dict[str, Prompt] = {}
    for number, given in enumerate(rows, start=1):
        try:
            row = prompt_row_from(with_images(given, images, ["prompt"]))
            images_check(images, prompt=row.prompt)
        except BadField as error:
            raise DomainError(
                f"Row {number}: {error.name} {error.message}.",
                field="prompts",
                row=number,
                details=error.message,
            ) from None
        wanted.setdefault(
            row.prompt_hash,
            Prompt(
                project=project,
                brief=row.prompt,
                text_hash=row.prompt_hash,
                group_key=row.group,
                topic=row.topic or texts["topic"],
                language=row.language or texts["language"],
                licence=row.licence,
                source=source,
                metadata={"id": row.external_id} if row.external_id else {},
            ),
        )
    Prompt.objects.bulk_create(wanted.values(), ignore_conflicts=True, batch_size=1_000)
    stored = Prompt.objects.filter(project=project, text_hash__in=list(wanted))
    by_hash = {prompt.text_hash: prompt for prompt in stored}
    return [by_hash[text_hash] for text_hash in wanted]


def _places_make(batch: WritingBatch, asked: Sequence[Prompt]) -> int:
    """A task for each prompt, with its slots and texts, in their order behind what is there."""
    now, step = time.time(), 1e-3
    tasks = Task.objects.bulk_create(
        [
            Task(
                project_id=batch.project_id,
                prompt=prompt,
                kind=Task.Kind.WRITE,
                overlap=batch.per_task,
                shuffle=now + place * step,
            )
            for place, prompt in enumerate(asked)
        ],
        batch_size=1_000,
    )
    slots = Slot.objects.bulk_create(
        [
            Slot(
                project_id=batch.project_id,
                task=task,
                position=position,
                kind=Slot.Kind.WRITE,
                shuffle=task.shuffle,
                topic=prompt.topic or batch.topic,
                language=prompt.language or batch.language,
            )
            for task, prompt in zip(tasks, asked, strict=True)
            for position in range(1, batch.per_task + 1)
        ],
        batch_size=1_000,
    )
    WrittenText.objects.bulk_create(
        [WrittenText(project_id=batch.project_id, batch=batch, slot=slot) for slot in slots],
        batch_size=1_000,
    )
    return len(slots)


@transaction.atomic
def writing_batch_open(*, batch: WritingBatch, is_open: bool, by: User) -> None:
    """Hand out the batch's places, or no more of them: what people hold stays theirs."""
    found = WritingBatch.objects.select_for_update(no_key=True).get(pk=batch.pk)
    if found.is_open == is_open:
        return
    WritingBatch.objects.filter(pk=found.pk).update(is_open=is_open, updated_at=timezone.now())
    tasks = Task.objects.filter(pk__in=found.texts.values("slot__task"))
    tasks.update(state=Task.State.OPEN if is_open else Task.State.DROPPED)
    audit_record(
        action="writing.batch_opened" if is_open else "writing.batch_closed",
        actor=by,
        project=found.project,
        subject=found.pk,
        details={"name": found.name},
    )


# --- writing ------------------------------------------------------------------------------------


def text_of_lease(lease: Lease) -> WrittenText:
    """The text of a place that was just handed out. One that was sent back to somebody who let it
    lapse is open again: it is the new person's now."""
    text = WrittenText.objects.select_related("batch").get(slot=lease.slot)
    if text.author_id not in (None, lease.annotator):
        text.state, text.author = State.OPEN, None
        text.save(update_fields=["state", "author", "updated_at"])
    return text


@retried
def draft_save(
    *, text: int, author: User, body: str, number: int = 0, editor: str = ""
) -> WrittenDraft:
    """Keep what was typed, and the place for longer.

    number: of the draft that the page has seen, 0 for none; editor: the page's own mark, with which
    it follows itself whatever number it has seen. Errors: `Missing`; `Conflict` (`lease_lost`)
    where the place is no longer theirs, or (`draft_newer`) where another page has saved since, with
    that draft's number in the details; `DomainError` naming `body`.
    """
    body, editor = _typed(body), editor.replace("\x00", "")
    _length_check(body, 0, MOST_CHARACTERS, "body")
    with transaction.atomic():
        slot = _held(text, author)
        now = timezone.now()
        values = {"body": body, "editor": editor[:40], "saved_at": now}
        draft, made = WrittenDraft.objects.select_for_update().get_or_create(
            text_id=text, author=author, defaults=values
        )
        if not made and draft.body != body:
            _newer_check(draft, number, editor)
            draft.body, draft.editor, draft.saved_at = body, editor[:40], now
            draft.number += 1
            draft.save()
        Slot.objects.filter(pk=slot.pk).update(
            leased_until=max(slot.leased_until or now, now + timedelta(seconds=WRITING_SECONDS))
        )
        return draft


def _newer_check(draft: WrittenDraft, number: int, editor: str) -> None:
    if draft.number != number and not (editor and draft.editor == editor[:40]):
        raise Conflict(
            gettext(
                "A newer draft of this text was saved elsewhere, perhaps in another tab. Nothing "
                "was overwritten."
            ),
            code="draft_newer",
            field="body",
            details={"number": draft.number},
        )


def _held(text: int, author: User) -> Slot:
    """The slot of a text in this person's hands, locked."""
    found = WrittenText.objects.filter(
        pk=text,
        project__memberships__user=author,
        project__memberships__role__in=LABELERS,
    ).first()
    if found is None:
        raise Missing(gettext("There is no such text."), field="text")
    slot = Slot.objects.select_for_update(no_key=True).get(pk=found.slot_id)
    if slot.state != Slot.State.LEASED or slot.annotator_id != author.pk:
        raise _lost()
    return slot


def _lost() -> Conflict:
    return Conflict(
        gettext(
            "This text is no longer reserved for you: it was submitted already, or you had it for "
            "so long that others may write it."
        ),
        code="lease_lost",
    )


@dataclass(frozen=True, slots=True)
class Submitted:
    """A stored version, and whether the same submit had been stored before."""

    version: WrittenVersion
    replayed: bool


@retried
def text_submit(
    *,
    text: int,
    author: User,
    body: str,
    idempotency_key: str,
    number: int | None = None,
    editor: str = "",
    confirmed: bool = False,
    active_ms: int | None = None,
    wall_ms: int | None = None,
    source: str = AnyAnswer.Source.PAGE,
) -> Submitted:
    """Hand in a text in one's hands: it waits for another person, or is accepted where the batch
    has no review and the scans found nothing.

    The same submit again, by `idempotency_key`, returns what was stored. number, editor: as in
    `draft_save`; without a number the draft is not looked at. confirmed: the author has seen what
    looks like personal data and keeps it. Errors: `Missing`, `Refused`; `Conflict` (`lease_lost`,
    `draft_newer`, `personal_data`, `known_prompt`); `DomainError` naming `body`.
    """
    if not idempotency_key or len(idempotency_key) > longest(WrittenVersion, "idempotency_key"):
        raise DomainError("1 to 120 characters.", field="idempotency_key")
    if "\x00" in idempotency_key:
        raise DomainError(gettext("A NUL character cannot be stored."), field="idempotency_key")
    for name, value in (("active_ms", active_ms), ("wall_ms", wall_ms)):
        if value is not None and not 0 <= value <= LONGEST_TIME:
            raise DomainError("Milliseconds, at most seven days of them.", field=name)
    body = _typed(body)
    place = WrittenText.objects.filter(pk=text).select_related("batch", "slot").first()
    if place is None:
        raise Missing(gettext("There is no such text."), field="text")
    with transaction.atomic(), prepared_cursor() as cursor:
        try:
            held = slot_lock(cursor, place.slot_id, author.pk, source)
        except Missing:
            raise Missing(gettext("There is no such text."), field="text") from None
        known = WrittenVersion.objects.filter(
            author=author, idempotency_key=idempotency_key
        ).first()
        if known is not None:
            if known.text_id != text or known.body != body:
                raise Conflict(
                    gettext("This key was already used for another text."),
                    code="key_reused",
                    field="idempotency_key",
                )
            return Submitted(known, replayed=True)
        if held.state != Slot.State.LEASED or held.annotator != author.pk:
            raise _lost()
        draft = WrittenDraft.objects.filter(text=text, author=author).first()
        if draft and number is not None and draft.body != body:
            _newer_check(draft, number, editor)
        batch = place.batch
        _length_check(body, batch.least_characters, batch.most_characters, "body")
        if not body.strip():
            raise DomainError(gettext("There is nothing to submit yet."), field="body")
        _new_check(batch, body, besides=text)
        warnings = _scanned(batch.project_id, body)
        personal = [one for one in warnings if not one.startswith(f"{PHRASE}:")]
        if personal and not confirmed:
            raise Conflict(
                gettext("The text %(what)s. Take it out, or confirm that it is nobody’s.")
                % {"what": warning_words(personal[0])},
                code="personal_data",
                field="body",
            )
        leased_ms = int((held.now - (held.leased_at or held.now)).total_seconds() * 1000)
        active, wall = times_bounded(active_ms, wall_ms, leased_ms=max(0, leased_ms))
        locked = WrittenText.objects.select_for_update(no_key=True).get(pk=text)
        version = _version_add(
            locked,
            author=author,
            body=body,
            warnings=warnings,
            at=held.now,
            idempotency_key=idempotency_key,
            guideline_id=held.guideline,
            active_ms=active,
            wall_ms=wall,
            source=source,
        )
        Slot.objects.filter(pk=place.slot_id).update(state=Slot.State.DONE, leased_until=None)
        before = locked.versions.filter(author=author).exclude(pk=version.pk)
        if source != AnyAnswer.Source.SIMULATED and not before.exists():
            counted: dict[str, Any] = {"project_id": held.project, "annotator_id": author.pk}
            cursor.execute(sql.COUNT_TODAY, counted)
        WrittenDraft.objects.filter(text=text, author=author).delete()
        if batch.review == Review.NONE and not warnings:
            locked.state = State.ACCEPTED
            _prompt_make(locked, batch, body)
        else:
            locked.state = State.WAITING
            texts_wait_tell(batch.project, by=author)
        locked.author, locked.submitted_at = author, held.now
        locked.save()
    return Submitted(version, replayed=False)


def _version_add(
    text: WrittenText, *, author: User, body: str, at: datetime, **more: Any
) -> WrittenVersion:
    text.n_versions += 1
    consent = Annotator.objects.filter(project=text.project_id, user=author)
    return WrittenVersion.objects.create(
        project_id=text.project_id,
        text=text,
        number=text.n_versions,
        author=author,
        body=body,
        submitted_at=at,
        consent_version=consent.values_list("consent_version", flat=True).first() or 0,
        **more,
    )


@retried
def text_pass_on(*, text: int, author: User, reason: str = "") -> None:
    """Give a text in one's hands to others, with why; the draft goes. Again is harmless."""
    place = WrittenText.objects.filter(pk=text).first()
    if place is None:
        raise Missing(gettext("There is no such text."), field="text")
    with transaction.atomic(), prepared_cursor() as cursor:
        try:
            writing_lock(cursor, place.project_id, author.pk)
        except Missing:
            raise Missing(gettext("There is no such text."), field="text") from None
        if slot_release(cursor, slot=place.slot_id, annotator=author.pk, reason=reason):
            WrittenText.objects.filter(pk=text).exclude(state=State.WITHDRAWN).update(
                state=State.OPEN, author=None, updated_at=timezone.now()
            )
            WrittenDraft.objects.filter(text=text, author=author).delete()


# --- review -------------------------------------------------------------------------------------


def may_review(*, batch: WritingBatch, role: str | None) -> bool:
    """By their role; nobody reviews what they wrote themselves."""
    return role in REVIEWERS or (role == Role.ANNOTATOR and batch.review == Review.PEERS)


@retried
@transaction.atomic
def text_review(
    *,
    text: int,
    reviewer: User,
    version: int,
    verdict: str,
    body: str = "",
    reason: str = "",
) -> WrittenText:
    """Accept the version that was read, accept it with an edit (`body`), or send it back with a
    reason. The same verdict of the same person again is harmless.

    Errors: `Missing` for outsiders; `Refused` for roles that do not review here and for the author
    (`own_text`); `Conflict` (`reviewed_already`) where somebody else was first or the text has
    another version by now; `DomainError` naming `verdict`, `body` or `reason`.
    """
    found = (
        WrittenText.objects.select_for_update(no_key=True, of=("self",))
        .select_related("batch", "batch__project", "author")
        .filter(pk=text)
        .first()
    )
    role = _role(found.project_id, reviewer) if found else None
    if found is None or role is None:
        raise Missing(gettext("There is no such text."), field="text")
    batch = found.batch
    if not may_review(batch=batch, role=role):
        raise Refused(gettext("People of the role %(role)s do not review here.") % {"role": role})
    if verdict not in Verdict.values:
        raise DomainError(f"One of {', '.join(Verdict.values)}.", field="verdict")
    reason, body = one_line(reason), _typed(body)
    if len(reason) > LONGEST_REASON:
        raise DomainError(
            gettext("At most %(n)s characters.") % {"n": count(LONGEST_REASON)}, field="reason"
        )
    if verdict == Verdict.REJECTED and not reason:
        raise DomainError(gettext("Say what is to be changed."), field="reason")
    read = found.versions.filter(number=version).first()
    if read is None:
        raise Missing(gettext("There is no such version."), field="version")
    if read.verdict and read.reviewed_by_id == reviewer.pk and read.verdict == verdict:
        return found
    if found.state != State.WAITING or found.n_versions != version:
        raise Conflict(
            gettext("Somebody else has reviewed this text, or it has changed since you opened it."),
            code="reviewed_already",
        )
    if found.author_id == reviewer.pk:
        raise Refused(gettext("Nobody reviews a text of their own."), code="own_text")
    if verdict == Verdict.EDITED and body == read.body:
        verdict = Verdict.ACCEPTED
    now = timezone.now()
    read.verdict, read.reviewed_by, read.reviewed_at, read.reason = verdict, reviewer, now, reason
    if verdict == Verdict.REJECTED:
        read.save(update_fields=["verdict", "reviewed_by", "reviewed_at", "reason"])
        _send_back(found, read, reviewer)
    else:
        words = read.body
        if verdict == Verdict.EDITED:
            _length_check(body, batch.least_characters, batch.most_characters, "body")
            if not body.strip():
                raise DomainError(gettext("There is nothing to submit yet."), field="body")
            words = body
            _version_add(
                found,
                author=reviewer,
                body=body,
                warnings=_scanned(found.project_id, body),
                at=now,
                edits=read,
                idempotency_key=f"edit.{read.pk}",
                guideline_id=read.guideline_id,
            )
        _new_check(batch, words, besides=found.pk)
        read.save(update_fields=["verdict", "reviewed_by", "reviewed_at", "reason"])
        found.state = State.ACCEPTED
        _prompt_make(found, batch, words)
    found.save()
    audit_record(
        action="writing.reviewed",
        actor=reviewer,
        project=batch.project,
        subject=batch.pk,
        details={"text": found.pk, "version": version, "verdict": str(verdict)},
    )
    return found


def _role(project: str, user: User) -> str | None:
    found = Membership.objects.filter(project=project, user=user, paused_reason="")
    return found.values_list("role", flat=True).first()


def _send_back(text: WrittenText, read: WrittenVersion, reviewer: User) -> None:
    """To its author, with what they wrote as their draft, or to anybody where they are gone."""
    author = read.author
    slot = Slot.objects.select_for_update(no_key=True).get(pk=text.slot_id)
    if author.is_active and _role(text.project_id, author) in LABELERS:
        slot.state, slot.annotator = Slot.State.LEASED, author
        slot.leased_until = timezone.now() + RETURNED_FOR
        text.state = State.REJECTED
        WrittenDraft.objects.update_or_create(
            text=text,
            author=author,
            defaults={"body": read.body, "number": 1, "editor": "", "saved_at": timezone.now()},
        )
        text_returned_tell(text, author, by=reviewer)
    else:
        slot.state, slot.annotator, slot.leased_until = Slot.State.FREE, None, None
        slot.leased_at = None
        text.state, text.author = State.OPEN, None
    slot.save(update_fields=["state", "annotator", "leased_until", "leased_at"])


def texts_of_absent_free(*, project: Project) -> int:
    """Places in the hands of people who no longer label here go to the others; how many."""
    here = Membership.objects.filter(
        project=project, user=OuterRef("annotator"), role__in=LABELERS, paused_reason=""
    )
    gone = Slot.objects.filter(
        ~Exists(here), project=project, kind=Slot.Kind.WRITE, state=Slot.State.LEASED
    )
    return _free(gone.values_list("pk", flat=True))


@transaction.atomic
def _free(slots: Iterable[int]) -> int:
    """Slots before texts, as everywhere."""
    held = Slot.objects.select_for_update(no_key=True).filter(
        pk__in=list(slots), state=Slot.State.LEASED
    )
    found = list(held.order_by("pk").values_list("pk", flat=True))
    Slot.objects.filter(pk__in=found).update(
        state=Slot.State.FREE, annotator=None, leased_at=None, leased_until=None
    )
    WrittenText.objects.filter(slot__in=found).exclude(state=State.WITHDRAWN).update(
        state=State.OPEN, author=None, updated_at=timezone.now()
    )
    return len(found)


# --- what a text is checked for -----------------------------------------------------------------


def _typed(text: str) -> str:
    """Browsers send CRLF; blank ends are nobody's."""
    if "\x00" in text:
        raise DomainError(gettext("A NUL character cannot be stored."), field="body")
    return text.replace("\r\n", "\n").rstrip()


def _length_check(text: str, least: int, most: int, field: str) -> None:
    if len(text) > most:
        raise DomainError(
            gettext("%(has)s characters; at most %(n)s.")
            % {"has": count(len(text)), "n": count(most)},
            field=field,
        )
    if len(text.strip()) < least:
        raise DomainError(
            gettext("%(has)s characters; at least %(n)s.")
            % {"has": count(len(text.strip())), "n": count(least)},
            field=field,
        )
    if "\x00" in text:
        raise DomainError(gettext("A NUL character cannot be stored."), field=field)


def _scanned(project: str, body: str) -> list[str]:
    """What the scans that every import goes through find in it."""
    chosen = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    found = [f"{one.kind}:{one.excerpt}" for one in personal_data(body)]
    if blocked := Phrases(chosen.constraint_phrases).first_in(body):
        found.append(f"{PHRASE}:{blocked.phrase}")
    return [one[:200] for one in found]


def warning_words(warning: str) -> str:
    """A stored warning in words."""
    kind, _colon, what = warning.partition(":")
    return str(FOUND[kind]) % {"what": what}


def _new_check(batch: WritingBatch, body: str, *, besides: int) -> None:
    """A prompt is written once: not one that the project has, nor one that waits here."""
    if batch.kind != Kind.PROMPTS:
        return
    same = Prompt.objects.filter(project=batch.project_id, text_hash=fingerprint(_asked(body)))
    waiting = WrittenVersion.objects.filter(
        text__batch=batch, text__state__in=(State.WAITING, State.ACCEPTED), body=body
    ).exclude(text=besides)
    if same.exists() or waiting.exists():
        raise _known_prompt()


def _known_prompt() -> Conflict:
    return Conflict(
        gettext("This project has the same prompt already. Write another one."),
        code="known_prompt",
        field="body",
    )


def _asked(body: str) -> Messages:
    return [{"role": "user", "content": body}]


def _prompt_make(text: WrittenText, batch: WritingBatch, body: str) -> None:
    """An accepted prompt is one of the project's, to be answered and compared like any."""
    if batch.kind != Kind.PROMPTS:
        return
    messages = _asked(body)
    try:
        with transaction.atomic():
            text.made_prompt = Prompt.objects.create(
                project_id=batch.project_id,
                brief=messages,
                text_hash=fingerprint(messages),
                group_key=loose_key(messages),
                topic=batch.topic,
                language=batch.language,
                licence=batch.licence,
                source=batch.name,
                metadata={"writing": batch.pk},
            )
    except IntegrityError:  # the same words were accepted or imported at the same time
        raise _known_prompt() from None


# --- when a person is erased --------------------------------------------------------------------


def writing_erase(user: User, *, discards: bool, removes: bool) -> dict[str, int]:
    """Their drafts always; what they hold goes to others. discards: their texts enter no further
    dataset; removes: the words of their versions and reviews are taken out, which discards them,
    and prompts of theirs that nothing answers go."""
    held = Slot.objects.filter(annotator=user, kind=Slot.Kind.WRITE, state=Slot.State.LEASED)
    done = {"texts_freed": _free(held.values_list("pk", flat=True)), "texts_withdrawn": 0}
    WrittenDraft.objects.filter(author=user).delete()
    mine = WrittenVersion.objects.filter(author=user)
    if discards or removes:
        texts = WrittenText.objects.filter(pk__in=mine.values("text"))
        withdrawn = texts.filter(state__in=(State.WAITING, State.ACCEPTED))
        done["texts_withdrawn"] = withdrawn.update(state=State.WITHDRAWN, updated_at=timezone.now())
    if removes:
        made = texts.filter(made_prompt__tasks__isnull=True).values("made_prompt")
        Prompt.objects.filter(pk__in=list(made.values_list("made_prompt", flat=True))).delete()
        mine.update(body="(removed)", warnings=[])
        reviewed = WrittenVersion.objects.filter(reviewed_by=user).exclude(reason="")
        reviewed.update(reason="(removed)")
    return done
