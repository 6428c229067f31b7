"""What a dataset would teach besides quality: the bias report, computed over assembled rows.

Pure: no queries, no clock. `report_build` makes the JSON that is shown before freezing, stored with
the frozen dataset and shown on its page; `prompts_build` does the same for a set of prompts beside
the project's demonstrations. A report is a list of checks, each with a verdict, the evidence and
what to do.
"""

from apps.snapshots.reports.build import PARTS, VERSION, report_build
from apps.snapshots.reports.material import ReportMaterial, ReportPair, ReportVote
from apps.snapshots.reports.prompts import prompts_build

__all__ = [
    "PARTS",
    "VERSION",
    "ReportMaterial",
    "ReportPair",
    "ReportVote",
    "prompts_build",
    "report_build",
]
