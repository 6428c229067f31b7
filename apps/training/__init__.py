"""Runs: launching, applying their events, checkpoints, the live pages."""
