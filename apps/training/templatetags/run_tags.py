"""The result of a check or probe on its own page."""

from typing import Any

from django import template

from apps.training.models import Run
from apps.training.screens.checks import check_result

register = template.Library()


@register.inclusion_tag("training/_check_result.html", takes_context=True)
def result_of_check(context: template.Context, run: Run) -> dict[str, Any]:
    """What it found, with its evidence, and the run it is about."""
    return {
        "run": run,
        "found": check_result(run),
        "active_project": context.get("active_project"),
    }
