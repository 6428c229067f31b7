"""Reads: incidents, diagnoses, models in service."""
