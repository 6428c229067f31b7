"""Stored agreement reports (what was computed, over what, as of when), and human rulings."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import Project, User
from apps.labeling.models import Choice, Comparison, Guideline


class AgreementReport(models.Model):
    """The last full computation; pages show it with its time and say when votes are newer."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="agreement"
    )
    computed_at = models.DateTimeField()
    last_vote_id = models.BigIntegerField(default=0)
    n_votes = models.IntegerField(default=0)
    n_comparisons = models.IntegerField(default=0)
    figures = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"agreement of {self.project_id}"


class ConsensusReport(models.Model):
    """How each way of deciding does on the project's own votes, and which one is proposed."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="consensus_report"
    )
    computed_at = models.DateTimeField()
    last_vote_id = models.BigIntegerField(default=0)
    n_votes = models.IntegerField(default=0)
    figures = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"ways to decide in {self.project_id}"


class AnnotatorReport(models.Model):
    """One person's figures and flags, each flag with its evidence. Nothing is done by itself."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    computed_at = models.DateTimeField()
    n_votes = models.IntegerField(default=0)
    figures = models.JSONField(default=dict)
    flags = models.JSONField(default=list, help_text="[{kind, sentence, …}], worst first")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user"], name="annotator_report_once_per_project"
            )
        ]

    def __str__(self) -> str:
        return f"figures of {self.user_id} in {self.project_id}"


# What people ruled on comparisons that votes did not settle.


class Ruling(models.Model):
    """One act on a dispute. Rows are added, never changed: the newest counts."""

    class Action(models.TextChoices):
        ADJUDICATED = "adjudicated", "adjudicated"
        SENT_AGAIN = "sent_again", "sent to re-annotation"
        DROPPED = "dropped", "dropped"
        MADE_GOLD = "made_gold", "made gold"
        REOPENED = "reopened", "put back"

    class Cause(models.TextChoices):
        AMBIGUOUS_PROMPT = "ambiguous_prompt", "ambiguous prompt"
        GUIDELINE_GAP = "guideline_gap", "guideline gap"
        ANNOTATOR_ERROR = "annotator_error", "annotator error"
        TASTE = "taste", "genuine preference difference"

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rulings")
    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="rulings")
    action = models.CharField(max_length=11, choices=Action.choices)
    cause = models.CharField(max_length=16, choices=Cause.choices, blank=True)
    choice = models.CharField(max_length=8, choices=Choice.choices, blank=True)
    note = models.CharField(max_length=1000, blank=True)
    guideline = models.ForeignKey(
        Guideline,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="under which re-annotated votes are cast",
    )
    votes_before = models.JSONField(
        default=dict, help_text="{choice: current deciding votes} when it was ruled"
    )
    saw_votes = models.BooleanField(
        null=True, help_text="had the votes been shown; null: from before this was kept"
    )
    by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(Q(action__in=["adjudicated", "made_gold"]) & ~Q(choice=""))
                | (~Q(action__in=["adjudicated", "made_gold"]) & Q(choice="")),
                name="ruling_names_its_choice",
            )
        ]
        indexes = [models.Index(fields=["project", "-at"], name="ruling_newest")]

    def __str__(self) -> str:
        return f"{self.action} on {self.comparison_id}"


class VotesShown(models.Model):
    """Somebody had the votes of a dispute shown before ruling on it."""

    comparison = models.ForeignKey(Comparison, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["comparison", "user"], name="votes_shown_once")
        ]

    def __str__(self) -> str:
        return f"votes of {self.comparison_id} shown to {self.user_id}"
