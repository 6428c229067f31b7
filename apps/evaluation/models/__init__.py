"""What evaluation keeps: reviews of models, and what people were asked about their outputs."""

from apps.evaluation.models.reviews import (
    AdversarialRound,
    ModelReview,
    OutputRanking,
    RankedOutput,
)

__all__ = ["AdversarialRound", "ModelReview", "OutputRanking", "RankedOutput"]
