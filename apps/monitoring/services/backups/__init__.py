"""Backups of the site, restores, and restores that are tried (docs/backups.md)."""

from apps.monitoring.services.backups.making import (
    Made,
    backup_make,
    backups_prune,
    erasures_copy,
)
from apps.monitoring.services.backups.proving import Proven, inspect, restore_prove
from apps.monitoring.services.backups.restoring import Restored, backup_restore
from apps.monitoring.services.backups.target import Target, target_of

__all__ = [
    "Made",
    "Proven",
    "Restored",
    "Target",
    "backup_make",
    "backup_restore",
    "backups_prune",
    "erasures_copy",
    "inspect",
    "restore_prove",
    "target_of",
]
