"""Reading writing work: batches with their progress, lists of texts, one text with its versions."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from apps.accounts.models import Project, Role, User
from apps.common.errors import Missing
from apps.labeling.models import (
    INSTRUCTION,
    Prompt,
    Slot,
    Task,
    WritingBatch,
    WrittenDraft,
    WrittenText,
    WrittenVersion,
)

WRITING = "writing"  # of an open text: somebody has it
STATES = {
    "open": "open",
    WRITING: "being written",
    "waiting": "waiting for review",
    "accepted": "accepted",
    "rejected": "sent back",
    "withdrawn": "withdrawn",
}
_HELD = Q(slot__state=Slot.State.LEASED)


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch and its texts by state, as `STATES` has them."""

    batch: WritingBatch
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def share_done(self) -> float:
        return self.counts["accepted"] / self.total if self.total else 0.0


def batches(*, project: Project) -> QuerySet[WritingBatch]:
    return WritingBatch.objects.filter(project=project).order_by("-created_at")


def batch_get(*, project: Project, batch: str) -> WritingBatch:
    found = WritingBatch.objects.filter(project=project, pk=batch.replace("\x00", "")).first()
    if found is None:
        raise Missing("There is no such batch of writing work.", field="batch")
    found.project = project
    return found


def progress_of(found: Iterable[WritingBatch]) -> list[Progress]:
    listed = list(found)
    rows = (
        WrittenText.objects.filter(batch__in=listed)
        .values_list("batch", "state")
        .annotate(n=Count("pk"), held=Count("pk", filter=_HELD))
    )
    counts = {batch.pk: dict.fromkeys(STATES, 0) for batch in listed}
    for batch, state, n, held in rows:
        being = held if state == "open" else 0
        counts[batch][state] += n - being
        counts[batch][WRITING] += being
    return [Progress(batch, counts[batch.pk]) for batch in listed]


def texts_list(
    *,
    project: Project,
    batch: WritingBatch | None = None,
    state: str = "",
    search: str = "",
    author: User | None = None,
) -> QuerySet[WrittenText]:
    """In their order; `state` as in `STATES`, `search` in prompts and current versions."""
    found = WrittenText.objects.filter(project=project).select_related(
        "batch", "slot__task__prompt", "slot__annotator", "author"
    )
    if batch is not None:
        found = found.filter(batch=batch)
    if author is not None:
        found = found.filter(author=author)
    if state == WRITING:
        found = found.filter(_HELD, state="open")
    elif state:
        found = found.filter(state=state)
        found = found.exclude(_HELD) if state == "open" else found
    if search := search.replace("\x00", ""):
        current = WrittenVersion.objects.filter(
            text=OuterRef("pk"), number=OuterRef("n_versions"), body__icontains=search
        )
        found = found.filter(Q(slot__task__prompt__brief__icontains=search) | Exists(current))
    return found.order_by("pk")


def state_of(text: WrittenText) -> str:
    held = text.slot.state == Slot.State.LEASED
    return WRITING if text.state == "open" and held else text.state


def current_bodies(texts: Iterable[WrittenText]) -> dict[int, WrittenVersion]:
    """{text: its newest version}."""
    rows = WrittenVersion.objects.filter(
        text__in=list(texts), number=F("text__n_versions")
    ).select_related("author", "edits__author")
    return {version.text_id: version for version in rows}


def text_get(*, project: Project, text: int) -> WrittenText:
    found = (
        WrittenText.objects.filter(project=project, pk=text)
        .select_related("batch", "slot__task__prompt", "slot__annotator", "author")
        .first()
    )
    if found is None:
        raise Missing("There is no such text.", field="text")
    found.batch.project = project
    return found


def versions_of(text: WrittenText) -> list[WrittenVersion]:
    """Oldest first."""
    return list(
        text.versions.order_by("number").select_related("author", "reviewed_by", "guideline")
    )


def draft_of(*, text: WrittenText, author: User) -> WrittenDraft | None:
    return WrittenDraft.objects.filter(text=text, author=author).first()


def held_by(*, project: Project, user: User) -> QuerySet[WrittenText]:
    """What is in their hands, sent back or begun; the oldest first."""
    return (
        WrittenText.objects.filter(
            _HELD, project=project, slot__annotator=user, slot__kind=Slot.Kind.WRITE
        )
        .select_related("batch", "slot__task__prompt")
        .order_by("slot__leased_at")
    )


def mine(*, project: Project, user: User) -> QuerySet[WrittenText]:
    """What they have a version of, newest first."""
    written = WrittenVersion.objects.filter(text=OuterRef("pk"), author=user, edits__isnull=True)
    return (
        WrittenText.objects.filter(Exists(written), project=project)
        .select_related("batch", "slot__task__prompt")
        .order_by("-submitted_at", "-pk")
    )


def reviewable(*, project: Project, user: User, role: str) -> QuerySet[WrittenText]:
    """What waits and is not theirs, the oldest first."""
    found = WrittenText.objects.filter(project=project, state=WrittenText.State.WAITING).exclude(
        author=user
    )
    if role == Role.ANNOTATOR:
        found = found.filter(batch__review=WritingBatch.Review.PEERS)
    return found.order_by("submitted_at", "pk")


def has_writing(project: Project) -> bool:
    return WritingBatch.objects.filter(project=project).exists()


def prompts_free(*, project: Project, topic: str = "", most: int) -> list[int]:
    """Prompts of the project that no writing task asks about yet, the oldest first. Those that
    offered tools are of agents, whose runs nobody writes by hand."""
    asked = Task.objects.filter(prompt=OuterRef("pk"), kind=Task.Kind.WRITE)
    found = Prompt.objects.filter(~Exists(asked), project=project, tools__isnull=True)
    found = found.exclude(source=INSTRUCTION)
    if topic:
        found = found.filter(topic=topic.replace("\x00", ""))
    return list(found.order_by("pk").values_list("pk", flat=True)[:most])


def texts_accepted(
    *, project: Project, kind: str, batches: Collection[str] = ()
) -> QuerySet[WrittenVersion]:
    """The newest version of every accepted text of batches of this kind, of all or of these, in
    their order."""
    found = WrittenVersion.objects.filter(
        project=project,
        text__state=WrittenText.State.ACCEPTED,
        text__batch__kind=kind,
        number=F("text__n_versions"),
    )
    return (found.filter(text__batch__in=batches) if batches else found).order_by("text")


def counts_for_freeze(*, project: Project) -> dict[str, Any]:
    """{kind: accepted texts} where there are any."""
    rows = (
        WrittenText.objects.filter(project=project, state=WrittenText.State.ACCEPTED)
        .values_list("batch__kind")
        .annotate(n=Count("pk"))
    )
    return dict(rows.order_by())
