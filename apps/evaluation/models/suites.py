"""Regression suites: the one that every policy is evaluated on, what became of it after each run,
and which prompts of an evaluation were trained on."""

from django.db import models

from apps.accounts.models import Project, User
from apps.common.models import Stamped
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run


class PromptOverlap(models.Model):
    """How many prompts of a finished evaluation its policy was trained on. Written once: neither
    the datasets nor the lineage of a finished run change."""

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, primary_key=True, related_name="prompt_overlap"
    )
    found = models.JSONField(help_text="`apps.evaluation.selectors.overlap.Overlap` as JSON")
    checked_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"overlap of {self.run_id}"


class AutomaticSuite(Stamped):
    """The suite that a project evaluates every policy on, against one baseline. `since`: policies
    whose training ended from then on; None where it is off."""

    project = models.OneToOneField(
        Project, on_delete=models.CASCADE, primary_key=True, related_name="automatic_suite"
    )
    dataset = models.ForeignKey(
        Snapshot, null=True, on_delete=models.SET_NULL, related_name="automatic_suites"
    )
    baseline = models.ForeignKey(
        Checkpoint, null=True, on_delete=models.SET_NULL, related_name="automatic_suites"
    )
    max_new_tokens = models.PositiveIntegerField(default=256)
    temperature = models.FloatField(default=0.0)
    since = models.DateTimeField(null=True, blank=True)
    set_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    def __str__(self) -> str:
        return f"automatic suite of {self.project_id}"


class SuiteLaunch(models.Model):
    """What the automatic suite did after one policy run: the evaluation that it launched, or why it
    launched none. One row a run, whatever is heard of its end twice."""

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, primary_key=True, related_name="suite_launch"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="suite_launches")
    evaluation = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="launched_by_suite"
    )
    code = models.CharField(max_length=60, blank=True, help_text="of the refusal")
    problem = models.TextField(blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at"]
        indexes = [models.Index(fields=["project", "-at"], name="suite_launch_by_project")]

    def __str__(self) -> str:
        return f"suite after {self.run_id}"
