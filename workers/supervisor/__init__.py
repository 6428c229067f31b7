"""Starts the trainer as a child process, relays its events, keeps its lease, passes on commands.

Plain Python: a CUDA crash, an out-of-memory kill or a leak ends the child and not the worker.
"""

from workers.supervisor.supervise import Supervisor

__all__ = ["Supervisor"]
