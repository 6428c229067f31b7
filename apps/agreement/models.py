"""Stored agreement reports: what was computed, over what, and as of when."""

from django.db import models

from apps.accounts.models import Project


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
