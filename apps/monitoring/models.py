"""Problems that somebody must look at, and the ways in which people hear of them."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.common.sealing import MARK, SealedField, unseal
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Checkpoint, Run

SEVERITIES = [("info", "info"), ("warning", "warning"), ("critical", "critical")]


class Incident(Named):
    """One problem with one cause, however many alerts it raises. `key` says of what: at most one
    incident of a key is open. What was learned is written down when it is closed."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        ACKNOWLEDGED = "acknowledged", "acknowledged"
        RESOLVED = "resolved", "resolved"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="incidents")
    key = models.CharField(max_length=120, help_text="such as run:<id>:reward or watch:<id>")
    run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.CASCADE, related_name="incidents"
    )
    checkpoint = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="incidents"
    )
    link = models.CharField(max_length=12, help_text="of the chain, see workers.rules.rule")
    rule = models.CharField(max_length=60, help_text="what spoke first")
    title = models.CharField(max_length=200)
    message = models.TextField(blank=True)
    severity = models.CharField(max_length=8, choices=SEVERITIES)
    state = models.CharField(max_length=12, choices=State.choices, default=State.OPEN)
    onset_step = models.BigIntegerField(null=True, blank=True)
    alerts = models.PositiveIntegerField(default=0, help_text="how many it has raised")
    opened_at = models.DateTimeField()
    heard_at = models.DateTimeField(help_text="last alert")
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    symptom = models.TextField(blank=True)
    assumption = models.TextField(blank=True)
    root_cause = models.TextField(blank=True)
    fix = models.TextField(blank=True)
    lesson = models.TextField(blank=True)

    class Meta:
        ordering = ["-opened_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "key"],
                condition=~Q(state="resolved"),
                name="incident_open_once",
            ),
            models.CheckConstraint(
                condition=Q(state="resolved", resolved_at__isnull=False)
                | (~Q(state="resolved") & Q(resolved_at__isnull=True)),
                name="incident_resolved_has_time",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-opened_at"], name="incident_by_project"),
            models.Index(
                fields=["project", "severity"],
                condition=~Q(state="resolved"),
                name="incident_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.id})"


class IncidentEntry(models.Model):
    """What happened in an incident, in order: alerts, evidence, notes, decisions, deliveries."""

    id = models.BigAutoField(primary_key=True)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="entries")
    kind = models.CharField(max_length=14)  # alert, evidence, note, state, check, delivery
    alert = models.OneToOneField(
        Alert, null=True, blank=True, on_delete=models.CASCADE, related_name="entry"
    )
    at = models.DateTimeField()
    by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    body = models.JSONField(default=dict)

    class Meta:
        ordering = ["at", "id"]
        indexes = [models.Index(fields=["incident", "at"], name="entry_by_incident")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.incident_id}"


class Mute(models.Model):
    """Nobody is notified of new incidents that fit, until it ends. They are still recorded. Empty
    fields fit everything."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="mutes")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    link = models.CharField(max_length=12, blank=True)
    rule = models.CharField(max_length=60, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    until = models.DateTimeField()
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="lifted before its time")

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["project", "until"], name="mute_by_project")]

    def __str__(self) -> str:
        return f"mute until {self.until}"


def tells_at_first() -> list[str]:
    return ["incidents"]


class Channel(models.Model):
    """Where incidents of a project are told, and which model each stage names: an e-mail address or
    a webhook."""

    class Kind(models.TextChoices):
        EMAIL = "email", "e-mail"
        WEBHOOK = "webhook", "webhook"

    class Tells(models.TextChoices):
        INCIDENTS = "incidents", "incidents"
        STAGES = "stages", "models in service"
        APPROVALS = "approvals", "approvals of models"
        ROUNDS = "rounds", "rounds"
        RUNS = "runs", "ended runs"
        DATASETS = "datasets", "frozen datasets"
        DECISIONS = "decisions", "decisions"
        VOTES = "votes", "votes"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="channels")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    address = models.CharField(max_length=500)
    secret = SealedField(blank=True, help_text="signs what a webhook is sent")
    secret_before = SealedField(blank=True)
    secret_before_until = models.DateTimeField(null=True, blank=True)
    least_severity = models.CharField(max_length=8, choices=SEVERITIES, default="warning")
    tells = models.JSONField(default=tells_at_first, help_text="values of Tells")
    told_until = models.DateTimeField(
        default=timezone.now, help_text="of votes, decisions and datasets"
    )
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "kind", "address"], name="channel_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.project_id}"

    @property
    def tells_words(self) -> str:
        return ", ".join(str(one.label) for one in self.Tells if one in self.tells)

    @property
    def keys(self) -> list[str]:
        """What a message is signed with: the secret, and the one before it while that counts.
        Raises `Conflict` where SECRET_KEY no longer opens them."""
        until = self.secret_before_until
        counts = until is not None and until > timezone.now()
        before = self.secret_before if counts else ""
        return [unseal(self.secret), *([] if not before or before.startswith(MARK) else [before])]


class Delivery(models.Model):
    """One message to one channel: written with what it tells of, sent afterwards, tried again."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        SENT = "sent", "sent"
        FAILED = "failed", "given up"

    id = models.BigAutoField(primary_key=True)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    incident = models.ForeignKey(
        Incident, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries"
    )
    event = models.CharField(max_length=24)  # opened, escalated, resolved, test, stage.changed …
    body = models.JSONField(default=dict)
    state = models.CharField(max_length=7, choices=State.choices, default=State.PENDING)
    tries = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["channel", "incident", "event"],
                condition=Q(incident__isnull=False),
                name="delivery_once",
            )
        ]
        indexes = [
            models.Index(fields=["next_at"], condition=Q(state="pending"), name="delivery_due")
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.channel_id}"


class ProjectLook(models.Model):
    """What the rules about people and data last saw of a project, and what was chosen of them.

    choices: as the setting `guards` of a run; memory: the engine's state; figures: by rule what was
    measured, its state and since when; vote_id: the newest vote when all votes were last read.
    """

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="look"
    )
    choices = models.JSONField(default=dict)
    memory = models.JSONField(default=dict)
    figures = models.JSONField(default=dict)
    looks = models.PositiveIntegerField(default=0)
    vote_id = models.BigIntegerField(default=0)
    looked_at = models.DateTimeField(null=True, blank=True)
    votes_read_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"people and data of {self.project_id}"


# Models in service: what is asked of them every hour, and what the world says of them.


class Watch(Named):
    """A policy or reward model in service, asked the same things again and again. `baseline` holds
    the figures of its first probe, or of the one a person set again."""

    class Kind(models.TextChoices):
        POLICY = "policy", "Policy"
        REWARD = "reward", "Reward model"

    class State(models.TextChoices):
        NEW = "new", "no probe yet"
        STEADY = "steady", "as at its baseline"
        DRIFTED = "drifted", "differs from its baseline"
        BROKEN = "broken", "does not answer"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="watches")
    kind = models.CharField(max_length=6, choices=Kind.choices)
    name = models.CharField(max_length=120)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="watches")
    reward = models.ForeignKey(
        Checkpoint,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="that scores a policy's answers",
    )
    claims = models.ForeignKey(
        Checkpoint,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the checkpoint that a served model is said to be",
    )
    prompts = models.ForeignKey(Snapshot, on_delete=models.PROTECT, related_name="watches")
    config = models.JSONField(default=dict, help_text="of the probe")
    every_minutes = models.PositiveIntegerField(default=60)
    next_at = models.DateTimeField()
    enabled = models.BooleanField(default=True)
    state = models.CharField(max_length=7, choices=State.choices, default=State.NEW)
    baseline = models.JSONField(default=dict)
    baseline_at = models.DateTimeField(null=True, blank=True)
    baseline_run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    probe = models.ForeignKey(
        Run,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="under way, or ended and not looked at yet; none begins beside it",
    )
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="watch_name_once"),
        ]
        indexes = [
            models.Index(fields=["next_at"], condition=Q(enabled=True), name="watch_due"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class ProbeResult(models.Model):
    """What one probe found, beside the baseline of that time."""

    id = models.BigAutoField(primary_key=True)
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="results")
    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="probe_result")
    at = models.DateTimeField()
    figures = models.JSONField(default=dict)
    findings = models.JSONField(default=list)
    details = models.JSONField(
        default=dict, help_text="what was asked (models, hashes) and the prompts that changed most"
    )
    fired = models.BooleanField(default=False)

    class Meta:
        ordering = ["-at"]
        indexes = [models.Index(fields=["watch", "-at"], name="probe_by_watch")]

    def __str__(self) -> str:
        return f"probe of {self.watch_id}"


class Outcome(models.Model):
    """What the world says of a model in service: satisfaction, completion, sales, by whoever
    measures it. `n` is how many cases are behind `value`."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="outcomes")
    checkpoint = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="outcomes"
    )
    watch = models.ForeignKey(
        Watch, null=True, blank=True, on_delete=models.SET_NULL, related_name="outcomes"
    )
    name = models.CharField(max_length=60)
    value = models.FloatField()
    n = models.PositiveIntegerField(null=True, blank=True)
    deviation = models.FloatField(null=True, blank=True, help_text="of single cases")
    unit = models.CharField(max_length=20, blank=True)
    higher_is_better = models.BooleanField(default=True)
    at = models.DateTimeField()
    source = models.CharField(max_length=60, blank=True)
    key = models.CharField(max_length=80, help_text="the same key is the same measurement")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at"]
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="outcome_once")]
        indexes = [models.Index(fields=["project", "name", "-at"], name="outcome_by_name")]

    def __str__(self) -> str:
        return f"{self.name} {self.value:g}"


# Conversations of a model in service that people look at.


class TrafficSetting(models.Model):
    """What of a model's traffic is taken. Its row is the lock of everything that is counted."""

    watch = models.OneToOneField(Watch, on_delete=models.CASCADE, related_name="traffic")
    enabled = models.BooleanField(default=False)
    share = models.FloatField(default=0.1, help_text="of conversations, by a hash of their id")
    random_share = models.FloatField(
        default=0.01, help_text="of the sampled, kept whatever they say"
    )
    needs_consent = models.BooleanField(default=True)
    worst_rating = models.FloatField(null=True, blank=True, help_text="at most: rated badly")
    least_logprob = models.FloatField(null=True, blank=True, help_text="under it: uncertain")
    fields = models.JSONField(default=list, help_text="kept beside the messages")
    keep_days = models.PositiveIntegerField(default=30)

    def __str__(self) -> str:
        return f"traffic of {self.watch_id}"


class TrafficBatch(models.Model):
    """A batch that was taken, by its key: sent again, it is answered as before."""

    id = models.BigAutoField(primary_key=True)
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="traffic_batches")
    key = models.CharField(max_length=80)
    counts = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["watch", "key"], name="traffic_batch_once")]

    def __str__(self) -> str:
        return f"batch {self.key} of {self.watch_id}"


class TrafficDay(models.Model):
    """What became of the conversations that came on one day (UTC), by name of the count."""

    id = models.BigAutoField(primary_key=True)
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="traffic_days")
    day = models.DateField()
    counts = models.JSONField(default=dict)

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["watch", "day"], name="traffic_day_once")]

    def __str__(self) -> str:
        return f"{self.day} of {self.watch_id}"


class TrafficConversation(models.Model):
    """One that went to people, without personal data. What is withdrawn or past its time keeps the
    hash of its id alone, so that it does not come back."""

    id = models.BigAutoField(primary_key=True)
    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="conversations")
    run = models.ForeignKey(
        Run,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="of the model of then, under which the inbox has the answer",
    )
    id_sha256 = models.CharField(max_length=64, help_text="of the sender's id, which is not kept")
    messages = models.JSONField(default=list)
    fields = models.JSONField(default=dict)
    reasons = models.JSONField(default=list)
    at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["watch", "id_sha256"], name="conversation_once")
        ]
        indexes = [models.Index(fields=["watch", "-id"], name="conversation_by_watch")]

    def __str__(self) -> str:
        return f"conversation of {self.watch_id}"


class BackupReport(models.Model):
    """A backup that was made, or a restore that was tried; `error` is empty where it went well.

    figures: {seconds of each part, bytes, rows, artifacts, absent}; target: its address, without
    user and password.
    """

    class Kind(models.TextChoices):
        MADE = "made", "backup"
        PROVEN = "proven", "trial restore"
        RESTORED = "restored", "restore"

    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=40, blank=True, help_text="of the backup, a time in UTC")
    target = models.CharField(max_length=300, blank=True)
    finished_at = models.DateTimeField(default=timezone.now)
    seconds = models.FloatField(default=0)
    error = models.TextField(blank=True)
    figures = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["kind", "-finished_at"], name="backup_report_newest")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}"
