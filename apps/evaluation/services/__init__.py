"""Writes of this app, a file a subject."""
