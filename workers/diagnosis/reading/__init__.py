"""Metrics files of runs trained elsewhere, read into curves. Standard library only.

found = read("trainer_state.json", data)    # raises ReadingError with every row that is wrong
found.series["reward"]                      # [(step, value), …]
"""

from workers.diagnosis.reading.files import read
from workers.diagnosis.reading.rows import Read, ReadingError, RowError

__all__ = ["Read", "ReadingError", "RowError", "read"]
