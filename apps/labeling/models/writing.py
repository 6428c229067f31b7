"""Texts that people write: batches of writing work, one text for each place, its versions.

Writing is work of the common queue: a place is a `Slot` of the kind `write` of a `Task` of the kind
`write`, so that leases, skips and who may have what are those of pairs. What the person is asked is
the task's prompt; where prompts are to be written, that is the batch's instruction.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.labeling.models.people import Guideline
from apps.labeling.models.tasks import Prompt, Slot
from apps.labeling.models.votes import AnyAnswer

INSTRUCTION = "writing instruction"  # source of the prompt that stands for a batch's instruction


class WritingBatch(Named):
    """One request for texts: answers to these prompts, or so many prompts."""

    class Kind(models.TextChoices):
        DEMONSTRATIONS = "demonstrations", "answers to prompts"
        PROMPTS = "prompts", "prompts"

    class Review(models.TextChoices):
        STAFF = "staff", "reviewers, engineers and admins"
        PEERS = "peers", "annotators too"
        NONE = "none", "nobody: what is submitted is accepted"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="writing_batches")
    kind = models.CharField(max_length=14, choices=Kind.choices)
    name = models.CharField(max_length=120)
    instruction = models.TextField(blank=True, help_text="Markdown")
    topic = models.CharField(max_length=200, blank=True)
    language = models.CharField(max_length=12, blank=True)
    licence = models.CharField(max_length=60, blank=True, help_text="of what is written")
    per_task = models.PositiveSmallIntegerField(default=1)
    least_characters = models.PositiveIntegerField(default=1)
    most_characters = models.PositiveIntegerField()
    review = models.CharField(max_length=5, choices=Review.choices, default=Review.STAFF)
    is_open = models.BooleanField(default=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(most_characters__gte=F("least_characters")),
                name="writing_batch_lengths_in_order",
            )
        ]

    def __str__(self) -> str:
        return self.name


class WrittenText(Stamped):
    """One place of a batch, and what has become of it. Being written: open, and its slot leased."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        WAITING = "waiting", "waiting for review"
        ACCEPTED = "accepted", "accepted"
        REJECTED = "rejected", "rejected"
        WITHDRAWN = "withdrawn", "withdrawn"  # its author was erased, and what they did with them

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    batch = models.ForeignKey(
        WritingBatch, on_delete=models.CASCADE, related_name="texts", db_index=False
    )
    slot = models.OneToOneField(Slot, on_delete=models.CASCADE, related_name="text")
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    author = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    n_versions = models.PositiveSmallIntegerField(default=0)
    submitted_at = models.DateTimeField(null=True, blank=True)
    made_prompt = models.ForeignKey(
        Prompt,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="what an accepted prompt became",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state="open", author__isnull=True)
                | ~Q(state="open") & Q(author__isnull=False, n_versions__gte=1),
                name="written_text_has_an_author",
            )
        ]
        indexes = [
            models.Index(fields=["batch", "state", "id"], name="written_text_by_state"),
            models.Index(
                fields=["project", "submitted_at"],
                condition=Q(state="waiting"),
                name="written_text_waiting",
            ),
        ]

    def __str__(self) -> str:
        return f"text {self.pk}"


class WrittenVersion(models.Model):
    """A text as it was submitted, or as a reviewer edited it (`edits`): rows are added, and of one
    only the verdict is written later, once; a trigger refuses the rest."""

    class Verdict(models.TextChoices):
        ACCEPTED = "accepted", _("accepted")
        EDITED = "edited", _("accepted with an edit")
        REJECTED = "rejected", _("sent back")

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    text = models.ForeignKey(
        WrittenText, on_delete=models.CASCADE, related_name="versions", db_index=False
    )
    number = models.PositiveSmallIntegerField()
    author = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    body = models.TextField()
    edits = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="edited_as"
    )
    warnings = ArrayField(
        models.CharField(max_length=200),
        default=list,
        blank=True,
        help_text="what the scans found when it was submitted: kind:excerpt, phrase:phrase",
    )
    guideline = models.ForeignKey(
        Guideline, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    consent_version = models.PositiveIntegerField(default=0)
    active_ms = models.PositiveIntegerField(null=True, blank=True)
    wall_ms = models.PositiveIntegerField(null=True, blank=True)
    source = models.CharField(
        max_length=6, choices=AnyAnswer.Source.choices, default=AnyAnswer.Source.PAGE
    )
    idempotency_key = models.CharField(max_length=120)
    submitted_at = models.DateTimeField()
    verdict = models.CharField(max_length=8, choices=Verdict.choices, blank=True, default="")
    reviewed_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    reviewed_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=1000, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["text", "number"], name="written_version_once"),
            models.UniqueConstraint(
                fields=["author", "idempotency_key"], name="written_version_submitted_once"
            ),
            models.CheckConstraint(
                condition=~Q(author=F("reviewed_by")), name="written_version_reviewed_by_another"
            ),
            models.CheckConstraint(
                condition=Q(verdict="", reviewed_by__isnull=True, reviewed_at__isnull=True)
                | ~Q(verdict="") & Q(reviewed_by__isnull=False, reviewed_at__isnull=False),
                name="written_version_reviewed_wholly",
            ),
            models.CheckConstraint(
                condition=~Q(verdict="rejected", reason=""), name="written_version_rejected_why"
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of text {self.text_id}"


class WrittenDraft(models.Model):
    """What one person has typed so far. `editor` names the page that saved it last: another page
    may only follow the `number` it has seen."""

    id = models.BigAutoField(primary_key=True)
    text = models.ForeignKey(
        WrittenText, on_delete=models.CASCADE, related_name="drafts", db_index=False
    )
    author = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    body = models.TextField(blank=True)
    number = models.PositiveIntegerField(default=1)
    editor = models.CharField(max_length=40, blank=True)
    saved_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["text", "author"], name="written_draft_once")
        ]

    def __str__(self) -> str:
        return f"draft of text {self.text_id}"
