"""What evaluation keeps: reviews of models, what people were asked about their outputs, and what
they said of single answers."""

from apps.evaluation.models.reviews import (
    AdversarialRound,
    ModelReview,
    OutputRanking,
    RankedOutput,
)
from apps.evaluation.models.verdicts import AuditSheet, FlaggedAnswer, SheetItem, Verdict

__all__ = [
    "AdversarialRound",
    "AuditSheet",
    "FlaggedAnswer",
    "ModelReview",
    "OutputRanking",
    "RankedOutput",
    "SheetItem",
    "Verdict",
]
