"""Files on their way in."""

from django.db import models

from apps.accounts.models import Project, User
from apps.common.models import Named


class ImportJob(Named):
    """A file on its way in: uploaded, checked without writing, imported; findable afterwards.

    `stage` is what is done with the file, `state` how far that is. A running job's worker holds the
    database's advisory lock of its number (`services.imports`), so that a killed one is noticed at
    once, and `attempt` is the fence: an attempt that was superseded changes nothing.
    """

    class Stage(models.TextChoices):
        CHECK = "check", "check"
        IMPORT = "import", "import"

    class State(models.TextChoices):
        DRAFT = "draft", "waits for its columns"
        QUEUED = "queued", "waiting for a worker"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"
        INTERRUPTED = "interrupted", "interrupted"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="imports")
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    number = models.BigIntegerField(unique=True, help_text="of its advisory lock")
    file_name = models.CharField(max_length=255)
    file_size = models.BigIntegerField(help_text="bytes")
    file_sha256 = models.CharField(max_length=64)
    file_deleted_at = models.DateTimeField(null=True, blank=True)
    stage = models.CharField(max_length=6, choices=Stage.choices, default=Stage.CHECK)
    state = models.CharField(max_length=11, choices=State.choices, default=State.DRAFT)
    settings = models.JSONField(default=dict, help_text="container, layout, mapping, options")
    preview = models.JSONField(default=dict, help_text="columns and first rows, as read with them")
    attempt = models.PositiveIntegerField(default=0)
    cancel_wanted = models.BooleanField(default=False)
    queued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, help_text="why it failed, in words for the importer")
    check_report = models.JSONField(default=dict, blank=True)
    result = models.JSONField(default=dict, blank=True)

    class Meta:
        indexes = [models.Index(fields=["project", "-created_at"], name="import_by_project")]

    def __str__(self) -> str:
        return f"import of {self.file_name}: {self.stage} {self.state}"
