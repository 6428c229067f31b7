"""The whole report, or a part of it: the quick checks first, those that fit a model after."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apps.snapshots.reports import labels, learning, prompts, skew, texts
from apps.snapshots.reports.checks import Check
from apps.snapshots.reports.material import Frame, ReportMaterial

VERSION = 1
QUICK, MODELS = "quick", "models"

_CHECKS: Mapping[str, tuple[Callable[[Frame], Check], ...]] = {
    QUICK: (
        learning.size,
        skew.length,
        skew.form,
        skew.refusals,
        skew.tone,
        skew.sources,
        skew.coverage,
        labels.annotators,
        labels.ages,
        learning.reasons,
        learning.criteria,
    ),
    MODELS: (
        texts.words,
        texts.repeats,
        texts.across,
        prompts.leakage,
        labels.swapped,
        learning.drift,
        learning.growth,
    ),
}
PARTS = tuple(_CHECKS)


def report_build(material: ReportMaterial, *, parts: Iterable[str] = PARTS) -> dict[str, Any]:
    """{"version", "n": training pairs, "looked_at": of them, "checks": [...]}, plain JSON types.

    The same material gives the same report. Without a training row there are no checks.
    """
    frame = Frame(material)
    wanted = [made for part in parts for made in _CHECKS[part]] if frame.n else []
    return {
        "version": VERSION,
        "n": frame.n_frozen,
        "looked_at": frame.n,
        "checks": [made(frame) for made in wanted],
    }
