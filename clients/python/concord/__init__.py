"""Typed client of Concord's API: labeling, datasets, runs, models.

    from concord import Client

    with Client("http://127.0.0.1:8000", token) as concord:
        pair = concord.next("arguments").pair
        run = concord.project("arguments").runs.launch("sft", "first", inputs={"data": dataset})

`AsyncClient` has all of it as coroutines. `python -m concord` is the command line.
"""

from concord.aio import AsyncClient
from concord.errors import ConcordError, RunFailed, Unreachable
from concord.operations import Answer
from concord.projects import Project, Run, WinRate
from concord.sync import Client
from concord.types import (
    Asks,
    Criterion,
    Dataset,
    DatasetDetail,
    Decision,
    DecisionsPage,
    Guidelines,
    Import,
    ImportReport,
    LabelingSettings,
    Message,
    Model,
    ModelDetail,
    Next,
    Nothing,
    Pair,
    Revision,
    RowProblem,
    Vote,
    VotesReport,
)

__all__ = [
    "Answer",
    "Asks",
    "AsyncClient",
    "Client",
    "ConcordError",
    "Criterion",
    "Dataset",
    "DatasetDetail",
    "Decision",
    "DecisionsPage",
    "Guidelines",
    "Import",
    "ImportReport",
    "LabelingSettings",
    "Message",
    "Model",
    "ModelDetail",
    "Next",
    "Nothing",
    "Pair",
    "Project",
    "Revision",
    "RowProblem",
    "Run",
    "RunFailed",
    "Unreachable",
    "Vote",
    "VotesReport",
    "WinRate",
]
