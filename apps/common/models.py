"""Base models."""

from django.db import models

from apps.common.ids import short_id


class Stamped(models.Model):
    """Rows that say when they came to be and when they last changed."""

    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class Named(Stamped):
    """Rows people speak about: their key is a short id that is shown and copied."""

    id = models.CharField(primary_key=True, max_length=16, default=short_id, editable=False)

    class Meta:
        abstract = True
