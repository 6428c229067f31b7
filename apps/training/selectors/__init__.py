"""What pages and API read of runs."""

from apps.training.selectors.metrics import (
    metric_columns,
    metric_latest,
    metric_news,
    metric_series,
    metrics_newest,
    thin,
    thin_column,
)
from apps.training.selectors.pages import SeedMetric, group_metrics, group_runs, group_sizes
from apps.training.selectors.runs import (
    Ancestor,
    Descendant,
    attempt_ends,
    checkpoint_for_use,
    checkpoints,
    lineage_down,
    lineage_up,
    log_tail,
    parked_count,
    run_events_after,
    run_get,
    run_list,
    samples,
)

__all__ = [
    "Ancestor",
    "Descendant",
    "SeedMetric",
    "attempt_ends",
    "checkpoint_for_use",
    "checkpoints",
    "group_metrics",
    "group_runs",
    "group_sizes",
    "lineage_down",
    "lineage_up",
    "log_tail",
    "metric_columns",
    "metric_latest",
    "metric_news",
    "metric_series",
    "metrics_newest",
    "parked_count",
    "run_events_after",
    "run_get",
    "run_list",
    "samples",
    "thin",
    "thin_column",
]
