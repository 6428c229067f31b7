"""A run that was launched and claimed, and what waits for a commit: as in the tests of the job
path."""

from tests.training.conftest import artifacts, commits, run, wire

__all__ = ["artifacts", "commits", "run", "wire"]
