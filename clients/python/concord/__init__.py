"""Typed client of Concord's API: labeling, disputes, runs, models.

    from concord import Client

    with Client("http://127.0.0.1:8000", token) as concord:
        pair = concord.next("arguments").pair

`AsyncClient` has the same methods as coroutines.
"""

from concord.aio import AsyncClient
from concord.errors import ConcordError, Unreachable
from concord.operations import Answer
from concord.sync import Client
from concord.types import (
    Asks,
    Criterion,
    Decision,
    DecisionsPage,
    Guidelines,
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
    "Decision",
    "DecisionsPage",
    "Guidelines",
    "ImportReport",
    "LabelingSettings",
    "Message",
    "Model",
    "ModelDetail",
    "Next",
    "Nothing",
    "Pair",
    "Revision",
    "RowProblem",
    "Unreachable",
    "Vote",
    "VotesReport",
]
