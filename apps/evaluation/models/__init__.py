"""What evaluation keeps: reviews of models, what people were asked about their outputs, and which
policy each stage names."""

from apps.evaluation.models.head_to_head import HeadToHead, Look
from apps.evaluation.models.promotion import (
    OverrideSignature,
    PromotionDecision,
    PromotionRequest,
    Stage,
    StageChange,
)
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
    "OverrideSignature",
    "PromotionDecision",
    "PromotionRequest",
    "RankedOutput",
    "Stage",
    "StageChange",
]
