"""Base models."""

import secrets

from django.db import models

# Short identifiers: easy to read aloud, to copy and to find in a log.

# No vowels (no words by accident), no 0/1/l/o (no misreading).
_ALPHABET = "23456789bcdfghjkmnpqrstvwxz"
LENGTH = 10  # 27**10 ≈ 2·10¹⁴: a million ids collide with probability 0.002


def short_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(LENGTH))


def one_line(text: str) -> str:
    """A reason or note as it is stored: without line breaks, NUL characters and space around."""
    return " ".join(text.replace("\x00", " ").split())


def longest(model: type[models.Model], name: str) -> int:
    """The most characters that this column takes."""
    field = model._meta.get_field(name)
    is_text = isinstance(field, models.CharField | models.TextField)
    most = field.max_length if is_text else None
    assert most is not None  # noqa: S101 — asked of short texts only, and these all have one
    return most


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
