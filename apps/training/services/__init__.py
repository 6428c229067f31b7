"""What can be done to runs. Other apps call these names."""

from apps.training.services.applying import Applied, events_apply
from apps.training.services.attempts import run_dispatch
from apps.training.services.commands import (
    alert_acknowledge,
    run_cancel,
    run_resume,
    run_stop_and_keep,
)
from apps.training.services.groups import (
    MOST_SEEDS,
    MOST_SWEPT,
    group_stop,
    runs_launch,
    seeds_add,
    sweep_check,
)
from apps.training.services.housekeeping import run_archive, run_delete, run_describe, uses_of
from apps.training.services.intermediates import (
    Removed,
    intermediates_expire,
    intermediates_measure,
    intermediates_remove,
)
from apps.training.services.kinds import KINDS
from apps.training.services.launching import launch_estimate, reward_try, run_clone, run_launch
from apps.training.services.points import Thinned, metrics_store, runs_thin
from apps.training.services.queueing import (
    quota_set,
    run_move,
    run_prioritise,
    run_send,
    runs_admit,
    worker_drain,
    worker_resume,
)
from apps.training.services.receiving import Imported, batch_receive, parked_apply, spool_import
from apps.training.services.repeating import (
    checkpoint_evaluate,
    evaluation_inputs,
    evaluation_missing,
    run_reproduce_small,
)
from apps.training.services.rollback import HEALTHY, START, roll_back_plan, run_roll_back
from apps.training.services.sweeping import runs_sweep

__all__ = [
    "HEALTHY",
    "KINDS",
    "MOST_SEEDS",
    "MOST_SWEPT",
    "START",
    "Applied",
    "Imported",
    "Removed",
    "Thinned",
    "alert_acknowledge",
    "batch_receive",
    "checkpoint_evaluate",
    "evaluation_inputs",
    "evaluation_missing",
    "events_apply",
    "group_stop",
    "intermediates_expire",
    "intermediates_measure",
    "intermediates_remove",
    "launch_estimate",
    "metrics_store",
    "parked_apply",
    "quota_set",
    "reward_try",
    "roll_back_plan",
    "run_archive",
    "run_cancel",
    "run_clone",
    "run_delete",
    "run_describe",
    "run_dispatch",
    "run_launch",
    "run_move",
    "run_prioritise",
    "run_reproduce_small",
    "run_resume",
    "run_roll_back",
    "run_send",
    "run_stop_and_keep",
    "runs_admit",
    "runs_launch",
    "runs_sweep",
    "runs_thin",
    "seeds_add",
    "spool_import",
    "sweep_check",
    "uses_of",
    "worker_drain",
    "worker_resume",
]
