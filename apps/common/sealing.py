"""Secrets that the database has to hold (webhooks' keys, seeds of authenticator apps), encrypted.

Sealed by Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from SECRET_KEY by HKDF; what a
former key of SECRET_KEY_FALLBACKS sealed is still opened, and `manage.py secrets_seal` seals it
again with the present one. Whoever has a dump or a backup without SECRET_KEY has no secret.
"""

import base64
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import models

from apps.common.errors import Conflict

MARK = "sealed:"


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    def derived(key: str) -> Fernet:
        raw = HKDF(SHA256(), 32, salt=None, info=b"concord secrets at rest").derive(key.encode())
        return Fernet(base64.urlsafe_b64encode(raw))

    return MultiFernet([derived(key) for key in keys])


def _present() -> MultiFernet:
    return _box((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


def seal(text: str) -> str:
    """What may be stored; empty stays empty."""
    return MARK + _present().encrypt(text.encode()).decode() if text else text


def unseal(stored: str) -> str:
    """The text; also of a value from before secrets were sealed. Raises `Conflict` for one that
    none of the present keys opens."""
    if not stored.startswith(MARK):
        return stored
    try:
        return _present().decrypt(stored.removeprefix(MARK).encode()).decode()
    except InvalidToken:
        raise Conflict(
            "A secret in the database was sealed under another SECRET_KEY. Put the former key into "
            "SECRET_KEY_FALLBACKS, or make the secret again.",
            code="sealed_elsewhere",
        ) from None


class SealedField(models.TextField):
    """Text that is sealed in the database and plain in Python. Nothing can be looked for in it.

    What no present key opens stays as it is stored, so that the rest of its row can be read: who
    needs the text calls `unseal`, which raises."""

    def from_db_value(self, value: str | None, *_: Any) -> str | None:
        try:
            return value and unseal(value)
        except Conflict:
            return value

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return value if value is None or value.startswith(MARK) else seal(value)
