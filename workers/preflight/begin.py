"""How every training recipe begins: with its settings, in small where that was asked for."""

from typing import Any

from workers.config import settings_for
from workers.context import RunContext
from workers.layouts.limits import check_layout
from workers.preflight.minimal import in_small


def settings_of(context: RunContext, kind: str) -> Any:
    """The settings of the run's configuration; of a minimal reproduction those of the same run in
    small, which the log says. Raises `RecipeError` (bad_config) for settings that are none, or that
    the job's layout does not go with."""
    settings = settings_for(kind, context.spec.config)
    check_layout(context.spec, settings)
    if not settings.minimal:
        return settings
    small = in_small(settings)
    context.log(small.message)
    return small.settings
