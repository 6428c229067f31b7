"""Is this data ready? What the project's own numbers say about methods, and what is missing."""

from apps.snapshots.readiness.gathering import Gathered, gather
from apps.snapshots.readiness.stating import StatedForm

__all__ = ["Gathered", "StatedForm", "gather"]
