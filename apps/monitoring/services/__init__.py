"""Writes: incidents and who is told, checks, imports, models in service."""
