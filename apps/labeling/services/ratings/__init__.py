"""What can be done to rating tasks: import, hand out, rate, change, skip, drop, put back."""

from apps.labeling.services.ratings.answers import (
    LONGEST_NOTE,
    rating_revise,
    rating_submit,
    rating_task_drop,
    rating_task_reopen,
)
from apps.labeling.services.ratings.importing import ratings_import
from apps.labeling.services.ratings.leasing import (
    RatingLease,
    RatingResult,
    RatingsReport,
    Scale,
    rating_lease_next,
    rating_skip,
)

__all__ = [
    "LONGEST_NOTE",
    "RatingLease",
    "RatingResult",
    "RatingsReport",
    "Scale",
    "rating_lease_next",
    "rating_revise",
    "rating_skip",
    "rating_submit",
    "rating_task_drop",
    "rating_task_reopen",
    "ratings_import",
]
