"""What is compared, who holds it, how it was voted on, what was decided."""

from apps.labeling.models.comments import Comment
from apps.labeling.models.comparisons import (
    MODEL_NAME,
    NOBODY_LEFT,
    Choice,
    Comparison,
    Consensus,
    DecideBy,
    Prompt,
    Response,
    Skip,
    Slot,
)
from apps.labeling.models.finding import (
    BulkAction,
    Facet,
    SavedView,
    SearchDocument,
    SearchPending,
)
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
from apps.labeling.models.settings import CLOSED_IDS, ImportJob, LabelingSettings, reason_chips
from apps.labeling.models.votes import AUDIT_SEED, Decision, Discard, DiscardedVote, Vote

__all__ = [
    "AUDIT_SEED",
    "CLOSED_IDS",
    "MODEL_NAME",
    "MOST_POINTS",
    "MOST_RESPONSES",
    "NOBODY_LEFT",
    "Annotator",
    "BulkAction",
    "Choice",
    "Comment",
    "Comparison",
    "Consensus",
    "DecideBy",
    "Decision",
    "Discard",
    "DiscardedVote",
    "Facet",
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
    "SavedView",
    "SearchDocument",
    "SearchPending",
    "Skip",
    "Slot",
    "Vote",
    "reason_chips",
]
