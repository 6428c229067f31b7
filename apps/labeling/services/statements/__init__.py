"""The statements behind the path of a vote, written by hand: each does in one round trip what the
ORM would do in several, and says which rows it locks.

Values are always parameters; what is pasted into the texts are constants of this module.
"""

from apps.labeling.services.statements.people import DRAW_AUDIT, DRAW_GOLD, DRAW_REPEAT
from apps.labeling.services.statements.queue import (
    DRAW,
    DRAW_BOTH,
    DRAW_LANGUAGES,
    DRAW_TOPICS,
    PROSPECT,
    RELEASE,
    TAKE,
    WHY_NOT,
    WHY_NOTHING,
)
from apps.labeling.services.statements.redeciding import (
    LOCK_COMPARISONS,
    MOVED_TABLE,
    READ_DECISIONS,
    STORE_DECISIONS,
    STORE_POSTERIORS,
)
from apps.labeling.services.statements.shared import LOOK, MIX, POLICY, SEAT, SIDE
from apps.labeling.services.statements.votes import (
    CHOICES,
    INSERT_VOTE,
    LOCK_FOR_VOTE,
    STORE_DECISION,
    VOTERS,
)

__all__ = [
    "CHOICES",
    "DRAW",
    "DRAW_AUDIT",
    "DRAW_BOTH",
    "DRAW_GOLD",
    "DRAW_LANGUAGES",
    "DRAW_REPEAT",
    "DRAW_TOPICS",
    "INSERT_VOTE",
    "LOCK_COMPARISONS",
    "LOCK_FOR_VOTE",
    "LOOK",
    "MIX",
    "MOVED_TABLE",
    "POLICY",
    "PROSPECT",
    "READ_DECISIONS",
    "RELEASE",
    "SEAT",
    "SIDE",
    "STORE_DECISION",
    "STORE_DECISIONS",
    "STORE_POSTERIORS",
    "TAKE",
    "VOTERS",
    "WHY_NOT",
    "WHY_NOTHING",
]
