"""Pipelines, which are recipes of rounds, and rounds, which are passes through them.

The rows are the truth: the scheduler reads them and moves what can move. Two rounds of a pipeline
at once are refused by the database, and a step launches what it launches by a key of its own.
"""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named, Stamped
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run

LONGEST_REASON = 500


class Pipeline(Named):
    """A recipe of rounds. What it says stands in its versions, of which the newest counts.

    `counted_pairs`: accepted pairs of the project when its last dataset was frozen; what there is
    beyond them is fresh. `disarmed`: triggers that held when a round was started by itself; each
    may start one again once it has not held for a moment.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="pipelines")
    name = models.CharField(max_length=80)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    counted_pairs = models.PositiveIntegerField(default=0)
    disarmed = models.JSONField(default=list, help_text="names of triggers")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="pipeline_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class PipelineVersion(models.Model):
    """What a pipeline said at a time. A trigger of the database refuses every change.

    `steps`: `apps.loop.recipe.Step` as JSON, in order. The other columns are the fields of
    `apps.loop.recipe.Rules`.
    """

    id = models.BigAutoField(primary_key=True)
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    steps = models.JSONField()
    trigger_pairs = models.PositiveIntegerField(null=True)
    trigger_age_days = models.PositiveIntegerField(null=True)
    trigger_drift = models.BooleanField(default=False)
    trigger_every_days = models.PositiveIntegerField(null=True)
    trigger_at_hour = models.PositiveSmallIntegerField(default=6)
    budget_minutes = models.PositiveIntegerField(null=True)
    budget_votes = models.PositiveIntegerField(null=True)
    budget_gpu_hours = models.FloatField(null=True)
    budget_money = models.FloatField(null=True)
    price_vote = models.FloatField(null=True)
    price_gpu_hour = models.FloatField(null=True)
    currency = models.CharField(max_length=8, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pipeline", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["pipeline", "number"], name="pipeline_version_once")
        ]

    def __str__(self) -> str:
        return f"version {self.number} of {self.pipeline_id}"


class Round(Named):
    """One pass through a pipeline, by the version that it started with."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        WAITING = "waiting", "waiting for people"
        PAUSED = "paused", "paused"
        FINISHED = "finished", "finished"
        STOPPED = "stopped", "stopped"

    class Trigger(models.TextChoices):
        HAND = "hand", "by hand"
        API = "api", "by API"
        PAIRS = "pairs", "by fresh pairs"
        AGE = "age", "by the age of the reward model"
        DRIFT = "drift", "by a model that drifted"
        SCHEDULE = "schedule", "by its schedule"
        PAST = "past", "of past runs"  # that the pipeline was made of

    LIVE_STATES = ("running", "waiting", "paused")
    MOVING_STATES = ("running", "waiting")

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rounds")
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="rounds")
    version = models.ForeignKey(PipelineVersion, on_delete=models.CASCADE, related_name="rounds")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.RUNNING)
    trigger = models.CharField(max_length=8, choices=Trigger.choices)
    started_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    fresh_pairs = models.PositiveIntegerField(default=0, help_text="when it started")
    paused_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    reason = models.CharField(max_length=LONGEST_REASON, blank=True, help_text="why it was stopped")
    spent_s = models.FloatField(default=0.0, help_text="of steps that were done again")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["pipeline", "number"], name="round_number_once"),
            models.UniqueConstraint(
                fields=["pipeline"],
                condition=Q(state__in=["running", "waiting", "paused"]),
                name="round_one_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["finished", "stopped"], ended_at__isnull=False)
                | Q(state__in=["running", "waiting", "paused"], ended_at__isnull=True),
                name="round_ended_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pipeline}, round {self.number}"

    @property
    def is_live(self) -> bool:
        return self.state in self.LIVE_STATES


class RoundStep(Stamped):
    """A step of a round. `attempt` counts how often it is done; what it launches carries a key of
    round, step and attempt, so nothing is launched twice.

    `inputs`: {role: {type, id}} as launched, for a freeze the accepted pairs there were; what it
    gave is `snapshot`, or `checkpoint`, or the `decision` of people.
    """

    class State(models.TextChoices):
        PENDING = "pending", "not started"
        RUNNING = "running", "running"
        WAITING = "waiting", "waiting for people"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        SKIPPED = "skipped", "skipped"

    OVER = ("done", "skipped")

    id = models.BigAutoField(primary_key=True)
    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="steps")
    place = models.PositiveSmallIntegerField()
    key = models.CharField(max_length=12)
    kind = models.CharField(max_length=8)
    state = models.CharField(max_length=7, choices=State.choices, default=State.PENDING)
    attempt = models.PositiveSmallIntegerField(default=1)
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="round_steps")
    snapshot = models.ForeignKey(
        Snapshot, null=True, on_delete=models.SET_NULL, related_name="round_steps"
    )
    checkpoint = models.ForeignKey(
        Checkpoint, null=True, on_delete=models.SET_NULL, related_name="round_steps"
    )
    inputs = models.JSONField(default=dict)
    decision = models.CharField(max_length=12, blank=True)
    problem = models.TextField(blank=True, help_text="why it failed, and what to do about it")
    reason = models.CharField(max_length=LONGEST_REASON, blank=True, help_text="of skipping it")
    skipped_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["round", "place"]
        constraints = [
            models.UniqueConstraint(fields=["round", "key"], name="round_step_once"),
            models.CheckConstraint(
                condition=~Q(state="skipped") | ~Q(reason=""), name="round_step_skipped_says_why"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.round_id}"

    @property
    def is_over(self) -> bool:
        return self.state in self.OVER

    @property
    def launch_key(self) -> str:
        """Names what this attempt launches for good."""
        return f"round:{self.round_id}:{self.key}:{self.attempt}"
