"""What is kept of a backup that was made and of a restore that was tried."""

import time
from typing import Any

from apps.common.errors import DomainError
from apps.monitoring.models import BackupReport
from apps.monitoring.services.backups.target import Target
from workers.logs import cleaned

LONGEST = 300


def error_words(error: Exception) -> str:
    """What is kept of a failure: ours by their message, others with their kind."""
    if isinstance(error, DomainError):
        return error.message
    return cleaned(f"{type(error).__name__}: {error}")[:1000]


def report_write(
    kind: str,
    target: Target,
    name: str,
    started: float,
    *,
    error: str = "",
    figures: dict[str, Any] | None = None,
) -> None:
    """`started`: of `time.perf_counter`; an error makes it a failed one."""
    BackupReport.objects.create(
        kind=kind,
        name=name[:40],
        target=target.words[:LONGEST],
        seconds=time.perf_counter() - started,
        error=error,
        figures=figures or {},
    )
