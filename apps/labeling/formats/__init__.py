"""Files that hold comparisons, read into rows of one form.

A file has a *container* (how bytes become records: JSON Lines, CSV, Parquet …) and a *layout* (how
a record means a comparison: pairs in columns, chosen and rejected, N completions …). Both are
found from the content and can be overridden. Nothing here knows of the database; what comes out
are rows for `services.comparisons_import` and `services.votes_import`.

Sources, read in November 2026: Hugging Face `datasets` (`save_to_disk`: Arrow IPC streams beside
`state.json` and `dataset_info.json`), TRL "Dataset formats" and `trl.data_utils.extract_prompt`,
the UltraFeedback and Anthropic HH-RLHF dataset cards, Label Studio's Pairwise tag and JSON export,
Argilla 1.x `FeedbackDataset.format_as("datasets")` and 2.x `records.to_list` / `to_datasets`.
"""

from apps.labeling.formats.layouts import LAYOUTS, Layout, layout_of
from apps.labeling.formats.records import PAIRINGS, Converted, FormatError, Options, RecordFault
from apps.labeling.formats.tables import CONTAINERS, Table, table_open

__all__ = [
    "CONTAINERS",
    "LAYOUTS",
    "PAIRINGS",
    "Converted",
    "FormatError",
    "Layout",
    "Options",
    "RecordFault",
    "Table",
    "layout_of",
    "table_open",
]
