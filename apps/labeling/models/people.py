"""Who labels: their eligibility, the guidelines they read, the qualification they pass."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.labeling.models.tasks import Choice, Comparison


class Annotator(Stamped):
    """One person's eligibility in one project: what they have read, may get, and have passed.

    Made when first needed; no row means: nothing acknowledged, no limits, not qualified. That
    someone is paused stands with their membership.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="annotators")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    acknowledged_version = models.PositiveIntegerField(default=0)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    consent_version = models.PositiveIntegerField(default=0, db_default=0)
    consented_at = models.DateTimeField(null=True, blank=True)
    qualified_at = models.DateTimeField(null=True, blank=True)
    daily_cap = models.PositiveIntegerField(
        null=True, blank=True, help_text="votes a day; empty: the project's"
    )
    topics = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    languages = ArrayField(models.CharField(max_length=12), default=list, blank=True)
    avoids_topics = ArrayField(
        models.CharField(max_length=200),
        default=list,
        db_default=[],
        blank=True,
        help_text="their own choice: no pairs of these",
    )
    avoids_sensitive = models.BooleanField(
        default=False, db_default=False, help_text="their own choice: no pair with a warning"
    )
    sensitive_day = models.DateField(
        null=True, blank=True, help_text="UTC day on which they last got a pair with a warning"
    )
    sensitive_of_day = models.PositiveIntegerField(
        default=0, db_default=0, help_text="pairs with a warning handed out on that day"
    )
    confusion = ArrayField(
        models.FloatField(),
        size=16,
        null=True,
        blank=True,
        help_text="P(vote | truth) in the project's consensus, row by row; written by agreement",
    )
    reliability = models.FloatField(
        null=True, blank=True, help_text="chance to vote for what is right, in the same model"
    )
    left_out_at = models.DateTimeField(
        null=True, blank=True, help_text="since when their votes enter no new dataset"
    )
    left_out_reason = models.CharField(max_length=300, blank=True, default="", db_default="")
    votes_day = models.DateField(null=True, blank=True, help_text="UTC day of the last vote")
    votes_of_day = models.PositiveIntegerField(
        default=0, help_text="votes cast on that day, counted as they are cast"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="annotator_once_per_project")
        ]

    def __str__(self) -> str:
        return f"annotator {self.user_id} of {self.project_id}"


class Guideline(Stamped):
    """A version of the instructions; every vote names the one it was cast under."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="guidelines")
    version = models.PositiveIntegerField()
    body = models.TextField(help_text="Markdown")
    is_major = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "version"], name="guideline_version_once"),
        ]

    def __str__(self) -> str:
        return f"guideline {self.version} of {self.project_id}"


class QualificationAttempt(Stamped):
    """One go at a project's qualification: so many gold pairs, answered with their explanations."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        PASSED = "passed", "passed"
        FAILED = "failed", "failed"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=7, choices=State.choices, default=State.RUNNING)
    pass_share = models.FloatField(help_text="the passing share when it began")
    n_pairs = models.PositiveSmallIntegerField()
    n_right = models.PositiveSmallIntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user", "number"], name="qualification_attempt_once"
            ),
            models.UniqueConstraint(
                fields=["project", "user"],
                condition=Q(state="running"),
                name="qualification_one_running",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.user_id} at {self.project_id}"


class QualificationAnswer(models.Model):
    """One task of an attempt (`comparison`, of any kind) and what was answered: a pair's `choice`,
    or `values` by stored place of responses that were `shown` in this order. This is no vote."""

    attempt = models.ForeignKey(
        QualificationAttempt, on_delete=models.CASCADE, related_name="answers"
    )
    comparison = models.ForeignKey(Comparison, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveSmallIntegerField()
    left_is = models.CharField(max_length=1, blank=True, choices=[("a", "A"), ("b", "B")])
    choice = models.CharField(max_length=8, blank=True, choices=Choice.choices)
    shown = ArrayField(models.PositiveSmallIntegerField(), default=list, blank=True)
    values = ArrayField(models.SmallIntegerField(), default=list, blank=True)
    is_right = models.BooleanField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "comparison"], name="qualification_pair_once"
            ),
            models.UniqueConstraint(
                fields=["attempt", "position"], name="qualification_position_once"
            ),
            models.CheckConstraint(
                condition=Q(choice="", values=[], is_right__isnull=True, answered_at__isnull=True)
                | (~Q(choice="") | ~Q(values=[]))
                & Q(is_right__isnull=False, answered_at__isnull=False),
                name="qualification_answered_wholly",
            ),
        ]

    def __str__(self) -> str:
        return f"pair {self.position} of attempt {self.attempt_id}"
