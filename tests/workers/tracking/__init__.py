"""Runs mirrored to other tools."""
