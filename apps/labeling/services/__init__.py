"""What can be done to projects, comparisons, slots and votes. Other apps call these names."""

from apps.labeling.services.adjudicating import (
    MOST_AT_ONCE,
    WHY_LEFT_OUT,
    SentAgain,
    comparison_adjudicate,
    comparison_make_gold,
    comparisons_send_again,
    rounds_of,
)
from apps.labeling.services.ballots import FLAGS, LONGEST_RATIONALE, Answer
from apps.labeling.services.import_progress import progress_read
from apps.labeling.services.import_running import import_job_run, import_jobs_sweep
from apps.labeling.services.importing import comparisons_import
from apps.labeling.services.imports import (
    import_job_cancel,
    import_job_check,
    import_job_configure,
    import_job_create,
    import_job_start,
)
from apps.labeling.services.leasing import (
    Standing,
    slot_lease_audit,
    slot_lease_for,
    slot_lease_next,
    slot_skip,
    standing_of,
)
from apps.labeling.services.oddities import WARNINGS, Scans
from apps.labeling.services.projects import (
    guideline_publish,
    labeling_set_up,
    labeling_settings_update,
    project_create,
    rule_of,
)
from apps.labeling.services.qualification import (
    Qualification,
    attempt_answer,
    attempt_grant,
    attempt_start,
    pairs_needed,
    practice_pairs,
    qualification_of,
)
from apps.labeling.services.replay import votes_import
from apps.labeling.services.results import (
    ImportReport,
    Lease,
    NothingReason,
    Offers,
    RowProblem,
    RowsRefused,
    VoteResult,
    VotesReport,
)
from apps.labeling.services.review import comparison_drop, comparison_reopen
from apps.labeling.services.seats import AUDITORS, LABELERS, Seat
from apps.labeling.services.standing import (
    annotator_disqualify,
    annotator_limits_set,
    annotator_qualify,
    annotators_qualify_experienced,
    experienced_unqualified,
    guideline_acknowledge,
)
from apps.labeling.services.votes import vote_cast, vote_revise, vote_withdraw

__all__ = [
    "AUDITORS",
    "FLAGS",
    "LABELERS",
    "LONGEST_RATIONALE",
    "MOST_AT_ONCE",
    "WARNINGS",
    "WHY_LEFT_OUT",
    "Answer",
    "ImportReport",
    "Lease",
    "NothingReason",
    "Offers",
    "Qualification",
    "RowProblem",
    "RowsRefused",
    "Scans",
    "Seat",
    "SentAgain",
    "Standing",
    "VoteResult",
    "VotesReport",
    "annotator_disqualify",
    "annotator_limits_set",
    "annotator_qualify",
    "annotators_qualify_experienced",
    "attempt_answer",
    "attempt_grant",
    "attempt_start",
    "comparison_adjudicate",
    "comparison_drop",
    "comparison_make_gold",
    "comparison_reopen",
    "comparisons_import",
    "comparisons_send_again",
    "experienced_unqualified",
    "guideline_acknowledge",
    "guideline_publish",
    "import_job_cancel",
    "import_job_check",
    "import_job_configure",
    "import_job_create",
    "import_job_run",
    "import_job_start",
    "import_jobs_sweep",
    "labeling_set_up",
    "labeling_settings_update",
    "pairs_needed",
    "practice_pairs",
    "progress_read",
    "project_create",
    "qualification_of",
    "rounds_of",
    "rule_of",
    "slot_lease_audit",
    "slot_lease_for",
    "slot_lease_next",
    "slot_skip",
    "standing_of",
    "vote_cast",
    "vote_revise",
    "vote_withdraw",
    "votes_import",
]
