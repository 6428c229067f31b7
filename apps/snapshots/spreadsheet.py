"""CSV that a spreadsheet opens as text: see `apps.common.spreadsheet`."""

from apps.common.spreadsheet import csv_lines, safe_cell

__all__ = ["csv_lines", "safe_cell"]
