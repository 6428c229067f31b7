"""Models under watch and what their probes found."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.monitoring.models import ProbeResult, Watch
from measures.drift import Level, Shift

REWARD = "score"  # the figure that a reward model gives, raw


def watches_of(project: Project) -> QuerySet[Watch]:
    """By name, those that are paused last."""
    rows = Watch.objects.filter(project=project)
    rows = rows.select_related("checkpoint__run", "reward__run", "prompts", "probe", "baseline_run")
    return rows.order_by("-enabled", "name")


def probe_results(watch: Watch) -> QuerySet[ProbeResult]:
    """Newest first."""
    return ProbeResult.objects.filter(watch=watch).select_related("run").order_by("-at", "-pk")


def shift_of(figure: Mapping[str, Any] | None) -> Shift | None:
    """The comparison with the baseline as it was kept with a figure."""
    kept = (figure or {}).get("shift")
    if not isinstance(kept, Mapping):
        return None
    return Shift(**{**kept, "level": Level(kept.get("level", "none"))})
