"""The secrets that workers sign their reports with, and whether a report was signed so.

A secret is derived from SECRET_KEY when a job is sent. Reports that were signed under a former key
are good as long as SECRET_KEY_FALLBACKS holds it.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from workers.contract.signing import attempt_secret, is_signed


def secret_of(run: str, attempt: int) -> str:
    """What the worker of this attempt signs with; it goes with the job and is stored nowhere."""
    return attempt_secret(settings.SECRET_KEY, run=run, attempt=attempt)


def is_from_its_worker(batch: Mapping[str, Any]) -> bool:
    """Whether the batch, which says whose it is, was signed with the secret of that attempt."""
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return any(
        is_signed(batch, attempt_secret(key, run=batch["run"], attempt=batch["attempt"]))
        for key in keys
    )
