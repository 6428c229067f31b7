"""Reads of agreement, a file per question."""
