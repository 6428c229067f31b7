"""The lines that only this side can measure: whether people agree with the model's ranking of its
outputs, and whether it still knows what they say."""

from django.core.cache import cache

from apps.evaluation.selectors.freshness import freshness_finding
from apps.evaluation.selectors.ranking import people_rank_finding
from apps.training.models import Checkpoint
from measures.trust.findings import Finding, finding_from_json, finding_to_json

_KEPT_S = 60


def web_findings(checkpoint: Checkpoint, *, quick: bool = False) -> dict[str, Finding]:
    """{line: Finding}; `quick`, for lists, takes a freshness that may be a minute old."""
    fresh = _freshness(checkpoint) if quick else freshness_finding(checkpoint)
    return {one.line: one for one in (fresh, people_rank_finding(checkpoint))}


def _freshness(checkpoint: Checkpoint) -> Finding:
    """It counts votes, which takes a while for each model of a list."""
    key = f"freshness:{checkpoint.pk}"
    kept = cache.get(key)
    if kept is None:
        kept = finding_to_json(freshness_finding(checkpoint))
        cache.set(key, kept, _KEPT_S)
    return finding_from_json(kept)
