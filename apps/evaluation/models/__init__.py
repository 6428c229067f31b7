"""What evaluation keeps: reviews of models, what people were asked about their outputs, and what
evaluations were measured by."""

from apps.evaluation.models.protocols import EvaluationProtocol, ProtocolUse
from apps.evaluation.models.reviews import (
    AdversarialRound,
    ModelReview,
    OutputRanking,
    RankedOutput,
)

__all__ = [
    "AdversarialRound",
    "EvaluationProtocol",
    "ModelReview",
    "OutputRanking",
    "ProtocolUse",
    "RankedOutput",
]
