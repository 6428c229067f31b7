"""The cursor of the vote path; it has moved to where every app can reach it."""

from apps.common.cursors import prepared_cursor

__all__ = ["prepared_cursor"]
