"""Models in service: what is asked of them every hour, and what the world says of them."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run


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
