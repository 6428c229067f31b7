"""Writes of agreement, a file per thing that is written."""
