"""Stored agreement reports: what was computed, over what, and as of when."""

from django.db import models

from apps.accounts.models import Project, User


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
