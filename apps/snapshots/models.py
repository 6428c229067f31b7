"""Frozen datasets: what went in, what was left out and why, and the files with their hashes."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.labeling.models import Comparison, WrittenVersion

READ_ONLY_KINDS = (
    "judge",
    "check",
    "probe",
)  # kinds of run that only look at a dataset and make nothing of it


IMPORTED, MIXTURE = "imported", "mixture"  # keys of recipes …
UNDECIDED = frozenset({IMPORTED, MIXTURE})  # … that decide nothing
IMPROVED = "from"  # key of a recipe that freezes what people wrote: improved answers, or texts
TRIED_AGAIN = frozenset({"ties", IMPROVED, MIXTURE})  # keys of recipes that a worker freezes
AI_FEEDBACK = "ai_feedback"  # beside IMPORTED: a model labelled the rows


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
        PAIRS = "pairs", "pairs without labels"
        STEPWISE = "stepwise", "steps, each right or wrong"

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


class SnapshotText(models.Model):
    """One version of a written text that is a row of a dataset."""

    id = models.BigAutoField(primary_key=True)
    snapshot = models.ForeignKey(
        Snapshot, on_delete=models.CASCADE, related_name="texts", db_index=False
    )
    version = models.ForeignKey(WrittenVersion, on_delete=models.PROTECT, related_name="+")
    split = models.CharField(max_length=24)
    ordinal = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["snapshot", "version"], name="snapshot_text_once")
        ]

    def __str__(self) -> str:
        return f"version {self.version_id} in {self.snapshot_id}"


class SplitAccess(models.Model):
    """Somebody read a file of a frozen dataset: a run, or a person. Written by whoever read it, in
    the same transaction; never changed or deleted (a database trigger refuses it), and it stays
    when the run, the dataset or the project goes. `protocol_sha256`: where the reader knew it."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(
        Project, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    snapshot = models.ForeignKey(
        Snapshot, on_delete=models.DO_NOTHING, db_constraint=False, related_name="accesses"
    )
    split = models.CharField(max_length=24)
    purpose = models.CharField(max_length=20, help_text="kind of the run, or what a person did")
    run = models.CharField(max_length=16, blank=True, help_text="its id; empty for a person's")
    attempt = models.PositiveIntegerField(null=True, blank=True)
    seq = models.BigIntegerField(null=True, blank=True, help_text="number of the event")
    person = models.ForeignKey(
        User,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="+",
    )
    person_name = models.CharField(max_length=150, blank=True)
    protocol_sha256 = models.CharField(max_length=64, blank=True)
    n_items = models.PositiveIntegerField(help_text="rows read")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "seq"],
                condition=~Q(run=""),
                name="split_access_once_per_event",
            ),
            models.CheckConstraint(
                condition=~Q(run="") | Q(person__isnull=False), name="split_access_has_a_reader"
            ),
        ]
        indexes = [
            models.Index(fields=["snapshot", "split", "id"], name="split_access_by_split"),
            models.Index(fields=["run"], name="split_access_by_run"),
        ]

    def __str__(self) -> str:
        return f"{self.split} of {self.snapshot_id} by {self.run or self.person_name}"


class SplitBudget(models.Model):
    """How many looks at a split are free; None: any number. Where there is no row,
    `apps.snapshots.recipe.DEFAULT_LOOKS` says it."""

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="budgets")
    split = models.CharField(max_length=24)
    looks = models.PositiveSmallIntegerField(null=True, blank=True)
    set_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["snapshot", "split"], name="split_budget_once")
        ]

    def __str__(self) -> str:
        return f"{self.looks} looks at {self.split} of {self.snapshot_id}"


class SplitSignOff(models.Model):
    """A second person lets `person` take the look number `look` at a split, beyond its budget."""

    id = models.BigAutoField(primary_key=True)
    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="sign_offs")
    split = models.CharField(max_length=24)
    look = models.PositiveIntegerField()
    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    signed_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=500)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(person=F("signed_by")), name="split_sign_off_by_another"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="split_sign_off_says_why"),
            models.UniqueConstraint(
                fields=["snapshot", "split", "look", "person"], name="split_sign_off_once"
            ),
        ]

    def __str__(self) -> str:
        return f"look {self.look} at {self.split} of {self.snapshot_id}"


class SelectionReplay(Named):
    """A replay of a project's votes: would choosing pairs have saved some, or asking fewer people
    about more pairs? One of a kind at a time per project. `result` is `measures.selection.Replay`
    with the verdict of each strategy, or `measures.depth.Depth` with that of each cell."""

    class Kind(models.TextChoices):
        SELECTION = "selection", "which pairs to ask about"
        DEPTH = "depth", "votes a pair"

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        FINISHED = "finished", "finished"
        FAILED = "failed", "failed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(
        max_length=9, choices=Kind.choices, default=Kind.SELECTION, db_default=Kind.SELECTION
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.QUEUED)
    most_per_prompt = models.PositiveSmallIntegerField(null=True, blank=True)
    verdict = models.CharField(max_length=12, blank=True)
    result = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind"],
                condition=Q(ended_at__isnull=True),
                name="selection_replay_one_of_a_kind",
            )
        ]

    def __str__(self) -> str:
        return f"replay {self.pk} of {self.project_id}"
