"""Frozen datasets: what went in, what was left out and why, and the files with their hashes."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.labeling.models import Comparison

READ_ONLY_KINDS = (
    "check",
    "probe",
)  # kinds of run that only look at a dataset and make nothing of it


IMPORTED, MIXTURE = "imported", "mixture"  # keys of recipes …
UNDECIDED = frozenset({IMPORTED, MIXTURE})  # … that decide nothing


class Snapshot(Named):
    """A dataset that never changes once frozen (a database trigger refuses it).

    `sha256` is the hash of the file tree's manifest at `uri`, below ARTIFACTS_URL. The private
    splits lie in a tree of their own (`store.private_folder_of`) with the hash `private_sha256`,
    empty where there are none. A draft is queued (`queued_at`) or at work (`started_at`).
    """

    class Kind(models.TextChoices):
        PREFERENCES = "preferences", "preference pairs"
        UNPAIRED = "unpaired", "single answers, desirable or not"
        DEMONSTRATIONS = "demonstrations", "demonstrations"
        PROMPTS = "prompts", "prompts"

    class State(models.TextChoices):
        DRAFT = "draft", "draft"
        FROZEN = "frozen", "frozen"
        FAILED = "failed", "failed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="snapshots")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=14, choices=Kind.choices)
    state = models.CharField(max_length=7, choices=State.choices, default=State.DRAFT)
    recipe = models.JSONField(
        default=dict, help_text="rule, filters, hold-outs, splits, seed: everything it was made by"
    )
    counts = models.JSONField(
        default=dict, help_text="rows per split, drops by reason, votes, annotators"
    )
    uri = models.CharField(max_length=200, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    private_sha256 = models.CharField(max_length=64, blank=True, default="", db_default="")
    size_bytes = models.BigIntegerField(default=0)
    error = models.TextField(blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    frozen_at = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    cancel_wanted = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(state="frozen")
                | (~Q(sha256="") & ~Q(uri="") & Q(frozen_at__isnull=False)),
                name="snapshot_frozen_has_hash",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def is_imported(self) -> bool:
        """Whether rows came from elsewhere, so that no comparison or vote is behind them."""
        return bool(self.recipe.get(IMPORTED))

    @property
    def is_decided(self) -> bool:
        """Whether its rows were decided here: neither imported nor mixed."""
        return not UNDECIDED & self.recipe.keys()

    @property
    def has_report(self) -> bool:
        """Reports are of votes and of what is asked."""
        if self.kind == self.Kind.DEMONSTRATIONS:
            return False
        return self.kind == self.Kind.PROMPTS or self.is_decided


class SnapshotRow(models.Model):
    """One comparison's fate in one snapshot: a row of a split, or dropped with a reason."""

    id = models.BigAutoField(primary_key=True)
    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="rows")
    comparison = models.ForeignKey(Comparison, on_delete=models.PROTECT, related_name="+")
    split = models.CharField(max_length=24, blank=True, help_text="empty when dropped")
    ordinal = models.PositiveIntegerField(null=True, blank=True)
    winner = models.CharField(max_length=8, blank=True)
    share = models.FloatField(null=True, blank=True)
    confidence = models.FloatField(
        null=True, blank=True, help_text="P(the winner is preferred) as the file states it"
    )
    posterior = models.FloatField(
        null=True, blank=True, help_text="of the winner, where a model of the voters decided"
    )
    weight = models.FloatField(null=True, blank=True, help_text="in the loss; mean 1 over training")
    decided_by = models.CharField(
        max_length=8,
        blank=True,
        default="",
        db_default="",
        help_text="votes, model, ruling, vote, label",
    )
    vote_ids = models.JSONField(default=list, help_text="the votes this row was decided from")
    dropped_because = models.CharField(max_length=60, blank=True)
    reason = models.CharField(
        max_length=300, blank=True, default="", db_default="", help_text="more words, where known"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(split="") ^ Q(dropped_because=""), name="snapshot_row_kept_or_dropped"
            ),
            models.UniqueConstraint(
                fields=["snapshot", "comparison", "split"], name="snapshot_row_once_per_split"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.comparison_id} in {self.snapshot_id}"
