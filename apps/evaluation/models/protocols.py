"""What evaluations were measured by, and which run by which."""

from django.db import models

from apps.accounts.models import Project
from apps.training.models import Run


class EvaluationProtocol(models.Model):
    """A protocol (`workers.contract.protocol`), once for each project that used it: `sha256` is the
    hash of the canonical JSON of `content`. Never changed."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="evaluation_protocols"
    )
    sha256 = models.CharField(max_length=64)
    content = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "sha256"], name="evaluation_protocol_once_per_project"
            ),
            models.CheckConstraint(
                condition=models.Q(sha256__regex="^[0-9a-f]{64}$"),
                name="evaluation_protocol_has_hash",
            ),
        ]

    def __str__(self) -> str:
        return self.sha256[:12]

    @property
    def short(self) -> str:
        """The beginning of its hash, as pages show it."""
        return self.sha256[:12]


class ProtocolUse(models.Model):
    """The run that was measured by a protocol; a run is measured by one."""

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, primary_key=True, related_name="protocol_use"
    )
    protocol = models.ForeignKey(EvaluationProtocol, on_delete=models.CASCADE, related_name="uses")

    def __str__(self) -> str:
        return f"{self.run_id} by {self.protocol_id}"
