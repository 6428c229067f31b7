"""Runs, their attempts and events, and what they leave behind.

The run row is the truth; messages are hints. `(run, attempt, seq)` is unique, so the same event
may arrive twice; `Run.attempt` fences, so events of a superseded attempt change no state.
"""

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.snapshots.models import Snapshot
from workers.contract.jobs import ONE, PLAIN

PARKED = "Parked"  # the type of an event that only a newer version can read


class Run(Named):
    """One training, generation or evaluation, over all its attempts."""

    class Kind(models.TextChoices):
        SFT = "sft", "Supervised fine-tuning"
        REWARD = "reward", "Reward model"
        PROCESS_REWARD = "process_reward", "Process reward model"
        DPO = "dpo", "DPO"
        KTO = "kto", "KTO"
        PPO = "ppo", "PPO"
        GRPO = "grpo", "GRPO"
        GENERATE = "generate", "Generation"
        EVALUATE = "evaluate", "Evaluation"
        ASSESS = "assess", "Assessment of a reward model"
        CHECK = "check", "Check"
        PROBE = "probe", "Probe"
        JUDGE = "judge", "Verdicts of a judge"
        REGISTER_POLICY = "register_policy", "Registered policy"
        REGISTER_REWARD = "register_reward", "Registered reward model"
        REGISTER_ENCODER = "register_encoder", "Registered encoder"
        SERVED = "served", "Served model"
        PUSH = "push", "Push to a hub"
        IMPORTED = "imported", "Imported"
        DRILL = "drill", "Test run"

    class State(models.TextChoices):
        WAITING = "waiting", "waiting for its inputs"
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        FINISHED = "finished", "finished"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    class Priority(models.IntegerChoices):
        LOW = 0, "low"
        NORMAL = 1, "normal"
        HIGH = 2, "high"

    REWARD_KINDS = (Kind.REWARD, Kind.REGISTER_REWARD)  # what they leave scores answers
    LIVE_STATES = ("waiting", "queued", "running", "stopping")
    ENDED_STATES = ("finished", "failed", "cancelled")

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    state = models.CharField(max_length=9, choices=State.choices, default=State.QUEUED)
    queue = models.CharField(max_length=10, default="cpu", help_text="its machine class")
    layout = models.CharField(max_length=10, default=ONE)  # of workers.contract.jobs
    processes = models.PositiveSmallIntegerField(
        default=1, help_text="over which the layout spreads it; 0: one for each GPU of its machine"
    )
    launcher = models.CharField(max_length=12, default=PLAIN)
    priority = models.PositiveSmallIntegerField(choices=Priority.choices, default=Priority.NORMAL)
    place = models.BigIntegerField(
        default=0, help_text="among those that wait for a slot: the least goes first"
    )
    goes_on = models.BooleanField(
        default=False, help_text="it had a slot and lost its machine: before all that wait"
    )
    config = models.JSONField(default=dict)
    seed = models.BigIntegerField(default=0)
    code_version = models.CharField(max_length=80, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="0 until first dispatched")
    command = models.CharField(
        max_length=6, blank=True, choices=[("stop", "stop and keep"), ("cancel", "cancel")]
    )
    step = models.BigIntegerField(default=0)
    total_steps = models.BigIntegerField(null=True, blank=True)
    phase = models.CharField(max_length=60, blank=True)
    eta_s = models.FloatField(null=True, blank=True)
    summary = models.JSONField(default=dict)
    fault = models.CharField(max_length=14, blank=True)
    failure_kind = models.CharField(max_length=60, blank=True)
    failure_message = models.TextField(blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    launch_key = models.CharField(
        max_length=80, blank=True, help_text="the same key launches once, however often it is sent"
    )
    override_reason = models.CharField(
        max_length=500,
        blank=True,
        help_text="why it was launched although a check said no, such as a reward not approved",
    )
    about = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="checks",
        help_text="the run whose problem this check or experiment looks into",
    )
    group = models.CharField(
        max_length=40, blank=True, help_text="runs that differ in their seed only share it"
    )
    note = models.TextField(blank=True, help_text="what people want to remember of it")
    tags = models.JSONField(default=list, blank=True)  # words of people, to find runs by
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="since when it is out of lists and choices"
    )
    admitted_at = models.DateTimeField(
        null=True, blank=True, help_text="since when its attempt has a slot of its machine class"
    )
    dispatched_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    heard_at = models.DateTimeField(null=True, blank=True, help_text="last sign of life")
    ended_at = models.DateTimeField(null=True, blank=True)
    thinned_at = models.DateTimeField(
        null=True, blank=True, help_text="since when old points are kept as extremes only"
    )
    scanned_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="when the files of its last attempt were looked through for blocked phrases",
    )
    intermediates_removed_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="when retention, or a person, looked at it and removed what was intermediate",
    )

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["finished", "failed", "cancelled"], ended_at__isnull=False)
                | Q(state__in=["waiting", "queued", "running", "stopping"], ended_at__isnull=True),
                name="run_ended_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="failed") | ~Q(failure_kind=""), name="run_failed_says_why"
            ),
            models.UniqueConstraint(
                fields=["project", "launch_key"],
                condition=~Q(launch_key=""),
                name="run_launched_once_per_key",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-created_at"], name="run_by_project"),
            models.Index(fields=["project", "group"], condition=~Q(group=""), name="run_by_group"),
            models.Index(
                fields=["state"],
                condition=Q(state__in=["waiting", "queued", "running", "stopping"]),
                name="run_live",
            ),
            models.Index(
                fields=["ended_at"],
                condition=Q(ended_at__isnull=False, scanned_at__isnull=True),
                name="run_unscanned",
            ),
            models.Index(
                fields=["queue"],
                condition=Q(state__in=["queued", "running", "stopping"]),
                name="run_in_class",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def trained_kind(self) -> str:
        """What was trained: of an imported run what its importer said, else its own kind."""
        trained = self.config.get("trained_as") if self.kind == self.Kind.IMPORTED else None
        return trained if isinstance(trained, str) and trained else self.kind

    @property
    def is_live(self) -> bool:
        return self.state in self.LIVE_STATES

    @property
    def seconds(self) -> float | None:
        """Wall time from its first start to its end; None of one that has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class Constitution(models.Model):
    """A version of what a project's models criticise and rewrite answers by. It never changes (a
    trigger of the database refuses it); a change is a version more.

    principles: [{"name", "text"}], in order. hard_rules: a reward that blocks answers
    (docs/rewards.md), or {}.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="constitutions")
    number = models.PositiveIntegerField()
    principles = models.JSONField(help_text="[{name, text}], in order")
    hard_rules = models.JSONField(default=dict, help_text="a reward that blocks, or nothing")
    note = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_name = models.CharField(max_length=150, help_text="stays when the account goes")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["project", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["project", "number"], name="constitution_number_once")
        ]

    def __str__(self) -> str:
        return f"version {self.number}"


class FolderDeletion(models.Model):
    """A folder of the artifact store that nothing needs: of a deleted run, of an intermediate
    checkpoint, of a trainer's state. The sweep deletes it, then this row."""

    folder = models.CharField(max_length=220, unique=True)  # below the store, without its address
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.folder


class DrainedWorker(models.Model):
    """A worker, by its name, that is to finish what it is at and to take no new run."""

    name = models.CharField(primary_key=True, max_length=255)
    since = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class RunQuota(Stamped):
    """What the runs of a project may take; null, or no row, is no limit.

    Checks and probes, which take a minute, do not count among the runs at once."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="run_quota")
    runs_at_once = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    space_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="of the artifact store, before launches are refused"
    )
    gpu_hours = models.PositiveIntegerField(
        null=True, blank=True, help_text="of the last 30 days, before runs on GPUs wait"
    )
    keep_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="after a run's end, for its trainer state and intermediate checkpoints",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(runs_at_once__gte=1), name="run_quota_is_positive"),
            models.CheckConstraint(condition=Q(space_bytes__gte=1), name="space_quota_is_positive"),
            models.CheckConstraint(condition=Q(keep_days__gte=1), name="keep_days_is_positive"),
        ]

    def __str__(self) -> str:
        return f"limits of {self.project_id}"


class RunAttempt(models.Model):
    """One try. Points of attempt k count up to the step attempt k + 1 resumed from."""

    class Cause(models.TextChoices):
        LAUNCH = "launch", "launched"
        RETRY = "retry", "tried again after a failure"
        RESUME = "resume", "resumed by a person"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    cause = models.CharField(max_length=6, choices=Cause.choices, default=Cause.LAUNCH)
    spec = models.JSONField(default=dict, help_text="the JobSpec as sent")
    resumed_from_step = models.BigIntegerField(null=True, blank=True)
    environment = models.JSONField(default=dict)
    last_seq = models.BigIntegerField(default=0, help_text="all events up to here are in")
    outcome = models.CharField(
        max_length=12, blank=True
    )  # finished, failed, cancelled, lost, interrupted
    created_at = models.DateTimeField(auto_now_add=True)
    opened_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["run", "number"]
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="attempt_number_once")
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.run_id}"


class RunEvent(models.Model):
    """Every event as received, but for Metrics: their points go into `MetricBlock`."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveSmallIntegerField()
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    type = models.CharField(max_length=20)
    body = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "seq"], name="event_once")]
        indexes = [
            models.Index(fields=["run", "type", "attempt", "seq"], name="event_by_type"),
            models.Index(
                fields=["run", "attempt", "seq"], condition=Q(type=PARKED), name="event_parked"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.attempt}/{self.seq} of {self.run_id}"


class MetricBlock(models.Model):
    """Metric points of one attempt, column by column and compressed (`metric_blocks`): how a run
    of a million points is a few dozen rows. Each batch of events adds one; small neighbours are
    merged, so a row says nothing of how its points arrived."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metric_blocks")
    attempt = models.PositiveSmallIntegerField()
    first_seq = models.BigIntegerField(help_text="of the events whose points it holds")
    last_seq = models.BigIntegerField()
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    points = models.IntegerField()
    head = models.BinaryField(help_text="names, places in the body, last numbers")
    body = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt", "first_seq"], name="block_once")
        ]

    def __str__(self) -> str:
        return f"steps {self.first_step}–{self.last_step} of {self.run_id}"


class Checkpoint(Named):
    """A saved model: where, which hash, and whether people may rely on it."""

    class Status(models.TextChoices):
        CANDIDATE = "candidate", "candidate"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"
        RETIRED = "retired", "retired"

    class RemovedBy(models.TextChoices):
        TRAINER = "trainer", "by the trainer, which keeps the newest two and those with a tag"
        RETENTION = "retention", "by the project's retention rule"
        PERSON = "person", "by hand"

    GIVEN_UP = (RemovedBy.RETENTION, RemovedBy.PERSON)  # after the run's end

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="checkpoints")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveSmallIntegerField()
    step = models.BigIntegerField()
    uri = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField(default=0)
    tags = models.JSONField(default=list)  # of best, last, failed, final
    metrics = models.JSONField(default=dict)
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.CANDIDATE)
    files_removed_at = models.DateTimeField(
        null=True, blank=True, help_text="since when only this row is left of it"
    )
    state_removed_at = models.DateTimeField(
        null=True, blank=True, help_text="since when it is a model that no run resumes from"
    )
    removed_by = models.CharField(max_length=9, blank=True, choices=RemovedBy.choices)

    class Meta:
        ordering = ["run", "step"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "step", "sha256"], name="checkpoint_once"
            )
        ]

    def __str__(self) -> str:
        return f"step {self.step} of {self.run_id}"


class RunInput(models.Model):
    """What a run reads: a snapshot, a checkpoint, the outcome of a run still to finish, or a file
    that a run left."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="inputs")
    role = models.CharField(max_length=20)  # see workers.contract.InputRef
    snapshot = models.ForeignKey(
        Snapshot, null=True, blank=True, on_delete=models.PROTECT, related_name="used_by"
    )
    checkpoint = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.PROTECT, related_name="used_by"
    )
    upstream = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.PROTECT, related_name="downstream"
    )
    artifact = models.ForeignKey(
        "Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="used_by"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "role"], name="run_input_role_once"),
            models.CheckConstraint(
                condition=Q(
                    snapshot__isnull=False,
                    checkpoint__isnull=True,
                    upstream__isnull=True,
                    artifact__isnull=True,
                )
                | Q(
                    artifact__isnull=False,
                    snapshot__isnull=True,
                    checkpoint__isnull=True,
                    upstream__isnull=True,
                )
                | (
                    Q(snapshot__isnull=True, artifact__isnull=True)
                    & (Q(checkpoint__isnull=False) | Q(upstream__isnull=False))
                ),
                name="run_input_is_one_thing",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} of {self.run_id}"


class Sample(models.Model):
    """One audited output of a run."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="samples")
    attempt = models.PositiveSmallIntegerField()
    seq = models.BigIntegerField()
    step = models.BigIntegerField()
    bucket = models.CharField(max_length=10)  # high, low, random, flagged
    prompt = models.JSONField()
    response = models.TextField()
    baseline = models.TextField(blank=True)
    reward = models.FloatField(null=True, blank=True)
    parts = models.JSONField(default=dict)
    kl = models.FloatField(null=True, blank=True)
    tokens = models.IntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt", "seq"], name="sample_once")
        ]
        indexes = [models.Index(fields=["run", "bucket", "-step"], name="sample_by_bucket")]

    def __str__(self) -> str:
        return f"{self.bucket} sample at {self.step} of {self.run_id}"


class Alert(models.Model):
    """A rule that fired in a run."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="alerts")
    attempt = models.PositiveSmallIntegerField()
    seq = models.BigIntegerField()
    step = models.BigIntegerField()
    rule = models.CharField(max_length=60)
    severity = models.CharField(max_length=8)  # info, warning, critical
    message = models.TextField()
    value = models.FloatField(null=True, blank=True)
    threshold = models.FloatField(null=True, blank=True)
    raised_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "seq"], name="alert_once")]

    def __str__(self) -> str:
        return f"{self.severity} {self.rule} in {self.run_id}"


class Artifact(models.Model):
    """A file a run left: a report, generated candidates, an audit sheet."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveSmallIntegerField()
    seq = models.BigIntegerField()
    name = models.CharField(max_length=120)
    purpose = models.CharField(max_length=20, blank=True)  # candidates, audit, probe for Generated
    uri = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField(default=0)
    count = models.IntegerField(null=True, blank=True)
    media_type = models.CharField(max_length=80, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt", "seq"], name="artifact_once")
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.run_id}"
