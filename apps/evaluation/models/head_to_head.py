"""Systems compared by people: what is asked, who looked at it when, and how it ended."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.labeling.models import EvaluationSet
from apps.training.models import Checkpoint, Run


class HeadToHead(Named):
    """Answers of two systems or more to the same prompts, compared by people who do not know whose
    is whose. `protocol` is fixed before the first vote: prompts, answers, the statistics plan."""

    class Stopping(models.TextChoices):
        ANY_TIME = "any_time", "At any time"
        AT_THE_END = "at_the_end", "Once, when all votes are in"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="head_to_heads")
    name = models.CharField(max_length=120)
    first_name = models.CharField(max_length=80, help_text="the system that is hoped to be better")
    second_name = models.CharField(max_length=80, help_text="what it is compared with")
    more_names = models.JSONField(
        default=list, blank=True, help_text="of further systems; the second stays the baseline"
    )
    first = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.RESTRICT, related_name="head_to_heads"
    )
    second = models.ForeignKey(
        Checkpoint, null=True, blank=True, on_delete=models.RESTRICT, related_name="+"
    )
    source = models.ForeignKey(
        Run,
        null=True,
        blank=True,
        on_delete=models.RESTRICT,
        related_name="head_to_heads",
        help_text="the evaluation whose answers these are; empty where they were imported",
    )
    pairs = models.OneToOneField(EvaluationSet, on_delete=models.RESTRICT, related_name="+")
    n_prompts = models.PositiveIntegerField(help_text="that people are asked about")
    n_alike = models.PositiveIntegerField(
        default=0, help_text="further prompts to which both gave the same answer"
    )
    n_pairs = models.PositiveIntegerField(
        null=True, blank=True, help_text="of answers; empty where there are two systems"
    )
    votes_each = models.PositiveSmallIntegerField(default=1)
    margin = models.FloatField(default=0.05)
    alpha = models.FloatField(default=0.05)
    stopping = models.CharField(max_length=10, choices=Stopping.choices, default=Stopping.ANY_TIME)
    protocol = models.JSONField()
    protocol_sha256 = models.CharField(max_length=64)
    repeat_days = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="to be done again after so many days"
    )
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    verdict = models.CharField(max_length=20, blank=True, help_text="as it ended")
    result = models.JSONField(null=True, blank=True, help_text="every figure as it ended")
    share_key = models.CharField(max_length=64, blank=True, default="")
    shared_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, result__isnull=True, verdict="")
                | Q(ended_at__isnull=False, result__isnull=False) & ~Q(verdict=""),
                name="head_to_head_ends_with_a_result",
            ),
            models.CheckConstraint(
                condition=Q(margin__gt=0, margin__lt=0.5, alpha__gt=0, alpha__lt=0.5),
                name="head_to_head_plan_is_possible",
            ),
            models.CheckConstraint(
                condition=Q(first__isnull=True) | Q(second__isnull=True) | ~Q(first=F("second")),
                name="head_to_head_of_two_systems",
            ),
            models.UniqueConstraint(
                fields=["share_key"],
                condition=~Q(share_key=""),
                name="head_to_head_share_key_once",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project"],
                condition=Q(ended_at__isnull=True),
                name="head_to_head_running",
            )
        ]

    @property
    def systems(self) -> list[str]:
        return [self.first_name, self.second_name, *self.more_names]

    @property
    def is_several(self) -> bool:
        return bool(self.more_names)

    @property
    def title(self) -> str:
        """Who is compared with whom, in a line."""
        return f"{self.first_name} against {' and '.join([self.second_name, *self.more_names])}"

    @property
    def due_at(self) -> datetime | None:
        """When it is to be done again, counted from its end; None where it is not, or runs."""
        if self.repeat_days is None or self.ended_at is None:
            return None
        return self.ended_at + timedelta(days=self.repeat_days)

    def __str__(self) -> str:
        return self.title


class Look(models.Model):
    """Somebody, or the schedule (`by` is empty), saw the estimate while so many votes were in.
    Rows are added, never changed."""

    head_to_head = models.ForeignKey(HeadToHead, on_delete=models.CASCADE, related_name="looks")
    at = models.DateTimeField(auto_now_add=True)
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    n_votes = models.PositiveIntegerField()
    value = models.FloatField(null=True)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    verdict = models.CharField(max_length=20)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["head_to_head", "by", "n_votes"],
                nulls_distinct=False,
                name="look_once_a_person_and_count",
            )
        ]

    def __str__(self) -> str:
        return f"{self.verdict} after {self.n_votes} votes"
