"""Results that another program measured: benchmarks of lm-evaluation-harness and Inspect."""

from django.db import models

from apps.accounts.models import Project, User
from apps.common.models import Named
from apps.training.models import Checkpoint


class OutsideResult(Named):
    """One task of a file, of a model that a person chose. `protocol` is by what it was measured, as
    canonical JSON with the hash `protocol_sha256`; `system` what the file says of the model.
    `metrics`: [{name, value, stderr, n, higher_is_better}]."""

    class Program(models.TextChoices):
        LM_EVAL = "lm-evaluation-harness", "lm-evaluation-harness"
        INSPECT = "inspect", "Inspect"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="outside_results")
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, related_name="outside_results"
    )
    program = models.CharField(max_length=24, choices=Program.choices)
    task = models.CharField(max_length=200)
    metrics = models.JSONField()
    protocol = models.JSONField()
    protocol_sha256 = models.CharField(max_length=64)
    system = models.JSONField(default=dict)
    measured_at = models.CharField(max_length=40, blank=True, help_text="as the file writes it")
    file_name = models.CharField(max_length=200)
    file_sha256 = models.CharField(max_length=64)
    imported_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    imported_name = models.CharField(max_length=150, help_text="stays when the account goes")

    class Meta:
        ordering = ["-created_at", "task"]
        constraints = [
            models.UniqueConstraint(
                fields=["checkpoint", "file_sha256", "task"], name="outside_result_once"
            ),
            models.CheckConstraint(
                condition=models.Q(protocol_sha256__regex="^[0-9a-f]{64}$"),
                name="outside_result_has_hash",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "protocol_sha256"], name="outside_result_by_protocol"),
        ]

    def __str__(self) -> str:
        return f"{self.task} of {self.checkpoint_id}"

    @property
    def short(self) -> str:
        """The beginning of its protocol's hash, as pages show it."""
        return self.protocol_sha256[:12]
