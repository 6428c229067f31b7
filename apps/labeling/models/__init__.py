"""What is compared, who holds it, how it was voted on, what was decided."""

from apps.labeling.models.comments import Comment
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
from apps.labeling.models.settings import CLOSED_IDS, ImportJob, LabelingSettings, reason_chips
from apps.labeling.models.tasks import (
    MODEL_NAME,
    MOST_POINTS,
    MOST_RESPONSES,
    NOBODY_LEFT,
    Choice,
    Comparison,
    Consensus,
    DecideBy,
    Prompt,
    Response,
    Skip,
    Slot,
    Task,
    TaskItem,
)
from apps.labeling.models.votes import (
    AUDIT_SEED,
    Answer,
    Decision,
    Discard,
    DiscardedVote,
    Vote,
)

__all__ = [
    "AUDIT_SEED",
    "CLOSED_IDS",
    "MODEL_NAME",
    "MOST_POINTS",
    "MOST_RESPONSES",
    "NOBODY_LEFT",
    "Annotator",
    "Answer",
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
    "Response",
    "SavedView",
    "SearchDocument",
    "SearchPending",
    "Skip",
    "Slot",
    "Task",
    "TaskItem",
    "Vote",
    "reason_chips",
]
