"""Images that messages and guidelines name: `![alternative text](image:<sha256>)`."""

from django.db import models

from apps.accounts.models import Project, User
from apps.common.models import Stamped


class StoredImage(Stamped):
    """An image of a project, decoded and encoded again without its metadata. The bytes lie in the
    artifact store, once for a project, by their hash."""

    class MediaType(models.TextChoices):
        PNG = "image/png"
        JPEG = "image/jpeg"
        WEBP = "image/webp"

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="images", db_index=False
    )
    sha256 = models.CharField(max_length=64)
    given_sha256 = models.CharField(max_length=64, help_text="of the bytes as they came")
    media_type = models.CharField(max_length=10, choices=MediaType.choices)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="bytes")
    look = models.BigIntegerField(
        help_text="64 bits of its brightness: images that look alike differ in few of them"
    )
    name = models.CharField(max_length=120, blank=True, help_text="of the file it came in")
    added_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "sha256"], name="image_once_per_project")
        ]
        indexes = [
            models.Index(fields=["project", "given_sha256"], name="image_as_given"),
            models.Index(fields=["sha256"], name="image_by_hash"),
        ]

    @property
    def reference(self) -> str:
        """How a message names it; the words in brackets are its alternative text."""
        return f"![{self.name.rsplit('.', 1)[0] or 'image'}](image:{self.sha256})"

    def __str__(self) -> str:
        return f"image {self.sha256[:12]}"
