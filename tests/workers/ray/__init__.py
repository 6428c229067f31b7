"""Runs with Ray actors, and what can be said of them without Ray."""

# Metrics of such runs only; test_actors.py looks for each, docs/metrics.md has them all.
BY_ACTORS = {
    "time/broadcast_s",
    "rollout/redrawn",
    "rollout/workers_replaced",
    "rollout/age",
    "rollout/corrected_share",
    "rollout/capped_share",
    "rollout/importance_mean",
    "rollout/dropped",
    "reward/workers_replaced",
}
