"""What evaluation keeps: reviews of models, and what people were asked about their outputs."""

from apps.evaluation.models.head_to_head import HeadToHead, Look
from apps.evaluation.models.reviews import (
    AdversarialRound,
    ModelReview,
    OutputRanking,
    RankedOutput,
)

__all__ = [
    "AdversarialRound",
    "HeadToHead",
    "Look",
    "ModelReview",
    "OutputRanking",
    "RankedOutput",
]
