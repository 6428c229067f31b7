"""Comparing the prompts of finished evaluations with what their policies were trained on."""

import logging

from django.db.models import Q

from apps.evaluation.models import PromptOverlap
from apps.evaluation.selectors.overlap import Overlap, overlap_find
from apps.training.models import Run
from workers.artifacts import ArtifactError

log = logging.getLogger(__name__)
_MOST = 20  # evaluations of one beat
_NEWEST = 500  # finished evaluations that are looked at


def overlaps_check() -> int:
    """Finished evaluations that were not compared yet, newest first; how many were now. Each is
    kept by itself, so that a process that ends loses none but the one at hand."""
    rows = Run.objects.filter(
        kind=Run.Kind.EVALUATE,
        state=Run.State.FINISHED,
        prompt_overlap=None,
        inputs__role="prompts",
        inputs__snapshot__isnull=False,
    ).filter(
        Q(inputs__checkpoint__isnull=False) | Q(inputs__upstream__isnull=False),
        inputs__role="policy",
    )
    done = 0
    for run in rows.order_by("-ended_at")[:_NEWEST]:
        if done == _MOST:
            break
        try:
            done += overlap_check(run=run) is not None
        except (ArtifactError, OSError, ValueError):
            log.exception("the prompts of evaluation %s cannot be compared", run.pk)
    return done


def overlap_check(*, run: Run) -> Overlap | None:
    """Compare them and keep what was found, once. None where there is nothing to compare."""
    found = overlap_find(run)
    if found is not None:
        PromptOverlap.objects.get_or_create(run=run, defaults={"found": found.to_json()})
    return found
