"""Frozen, hashed datasets."""
