"""Reads of this app, a file a subject."""
