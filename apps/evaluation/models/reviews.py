"""Who judged a model and how, and what people were asked about its outputs."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.labeling.models import Task
from apps.training.models import Checkpoint, Run


class ModelReview(models.Model):
    """One decision about a model. Rows are added, never changed: the newest counts, and
    `Checkpoint.status` repeats it. `state` keeps the page as the reviewer saw it."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="model_reviews")
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.CASCADE, related_name="reviews")
    status = models.CharField(max_length=9, choices=Checkpoint.Status.choices)
    reason = models.CharField(max_length=1000, blank=True)
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150, help_text="stays when the account goes")
    at = models.DateTimeField(auto_now_add=True)
    assessment = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.JSONField(default=dict, help_text="every line as it stood: findings as JSON")
    state_sha256 = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(status__in=["rejected", "retired"]) | ~Q(reason=""),
                name="model_review_says_why",
            ),
            models.CheckConstraint(
                condition=~Q(status="approved") | ~Q(state_sha256=""),
                name="model_approval_keeps_its_page",
            ),
        ]
        indexes = [models.Index(fields=["checkpoint", "-id"], name="model_review_newest")]

    def __str__(self) -> str:
        return f"{self.status}: {self.checkpoint_id}"


class OutputRanking(Named):
    """Outputs of an assessment sent to people for grading, to see whether the model ranks them as
    people do."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="output_rankings")
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, related_name="output_rankings"
    )
    assessment = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="output_rankings")
    overlap = models.PositiveSmallIntegerField(default=3, help_text="grades wanted per output")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["checkpoint", "assessment"], name="output_ranking_sent_once"
            )
        ]

    def __str__(self) -> str:
        return f"outputs of {self.assessment_id}"


class RankedOutput(models.Model):
    """One output of a ranking: the model's score, and the task in which people grade it."""

    ranking = models.ForeignKey(OutputRanking, on_delete=models.CASCADE, related_name="outputs")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="+")
    score = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["ranking", "task"], name="ranked_output_once")
        ]

    def __str__(self) -> str:
        return f"{self.task_id} in {self.ranking_id}"


class AdversarialRound(Named):
    """Answers that a reward model scores high, sent to people beside another answer to the same
    prompt. Where people prefer the other, the pair teaches the next model; the comparisons carry
    `batch`."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="adversarial_rounds"
    )
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, related_name="adversarial_rounds"
    )
    source = models.ForeignKey(
        Run,
        on_delete=models.CASCADE,
        related_name="adversarial_rounds",
        help_text="the run whose answers were scored",
    )
    batch = models.CharField(max_length=120)
    n_pairs = models.PositiveIntegerField()
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "source"], name="adversarial_round_once"),
            models.UniqueConstraint(fields=["project", "batch"], name="adversarial_batch_once"),
        ]

    def __str__(self) -> str:
        return f"{self.n_pairs} pairs against {self.checkpoint_id}"
