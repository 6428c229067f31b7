"""What is compared, who holds it, how it was voted on, what was decided."""

from apps.labeling.models.choices import Choice, DecideBy
from apps.labeling.models.comparisons import Comparison, Skip, Slot
from apps.labeling.models.consensus import Consensus
from apps.labeling.models.content import Prompt, Response
from apps.labeling.models.imports import ImportJob
from apps.labeling.models.people import (
    Annotator,
    Guideline,
    QualificationAnswer,
    QualificationAttempt,
)
from apps.labeling.models.ratings import (
    MOST_POINTS,
    MOST_RESPONSES,
    Rating,
    RatingItem,
    RatingSkip,
    RatingSlot,
    RatingTask,
)
from apps.labeling.models.settings import LabelingSettings, reason_chips
from apps.labeling.models.votes import AUDIT_SEED, Decision, Vote

__all__ = [
    "AUDIT_SEED",
    "MOST_POINTS",
    "MOST_RESPONSES",
    "Annotator",
    "Choice",
    "Comparison",
    "Consensus",
    "DecideBy",
    "Decision",
    "Guideline",
    "ImportJob",
    "LabelingSettings",
    "Prompt",
    "QualificationAnswer",
    "QualificationAttempt",
    "Rating",
    "RatingItem",
    "RatingSkip",
    "RatingSlot",
    "RatingTask",
    "Response",
    "Skip",
    "Slot",
    "Vote",
    "reason_chips",
]
