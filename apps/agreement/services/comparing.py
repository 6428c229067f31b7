"""What each way to decide makes of the same votes: kept, right on gold pairs, passed by chance."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.agreement.selectors.slices import Crowd
from apps.agreement.selectors.votes import flipped_keep_rate, kept_accuracy
from apps.labeling.models import DecideBy, LabelingSettings
from apps.labeling.services import rule_of
from measures.consensus import METHODS, Check, Comparison, Fit, majority, share_right, wawa
from measures.consensus.choosing import LEAST_PROPOSED
from measures.intervals import wilson
from measures.voting import (
    PosteriorRule,
    Rule,
    decide_many,
    decide_many_by_posterior,
    expected_keep_rate,
)


def figures_of(crowd: Crowd, comparison: Comparison, settings: LabelingSettings) -> dict[str, Any]:
    """The stored comparison: a row per way, what is recommended and whether it is proposed."""
    votes = crowd.votes
    counted = majority(votes)
    rows = [_counted_row(crowd, rule_of(settings), comparison)]
    for method in METHODS:
        if method in comparison.fits:
            made, check = comparison.fits[method], comparison.checks[method]
            rows.append(_model_row(crowd, made, check, posterior_rule_of(settings), counted.winner))
    return {
        "ways": rows,
        "wawa": _gold(crowd, wawa(votes).shares, None),
        "n_items": votes.n_items,
        "n_annotators": votes.n_annotators,
        "recommended": comparison.method,
        "trusted": comparison.trusted,
        "reason": comparison.reason,
        "proposed": comparison.method if comparison.proposed else "",
        "caution": comparison.caution,
        "needed_votes": LEAST_PROPOSED,
        "rule": asdict(rule_of(settings)),
        "least_posterior": settings.least_posterior,
    }


def posterior_rule_of(settings: LabelingSettings) -> PosteriorRule:
    return PosteriorRule(
        least_posterior=settings.least_posterior,
        least_votes=settings.least_votes,
        max_votes=settings.max_overlap,
    )


def _counted_row(crowd: Crowd, rule: Rule, comparison: Comparison) -> dict[str, Any]:
    counts = crowd.votes.counts()
    decided = decide_many(counts, rule)
    checks = [c for c in comparison.checks.values() if c.counted_log_loss is not None]
    return {
        "method": DecideBy.VOTES.value,
        "kept": int((decided.winner >= 0).sum()),
        "n": crowd.votes.n_items,
        "gold": _gold(crowd, majority(crowd.votes).shares, decided.winner),
        "chance": expected_keep_rate(rule, counts.sum(axis=1).tolist()),
        "same_as_counting": None,
        "check": {"log_loss": checks[0].counted_log_loss, "brier": checks[0].counted_brier}
        if checks
        else None,
    }


def _model_row(
    crowd: Crowd,
    made: Fit,
    check: Check,
    rule: PosteriorRule,
    counted_winner: NDArray[np.integer[Any]],
) -> dict[str, Any]:
    votes = crowd.votes
    decided = decide_many_by_posterior(votes.counts(), made.posteriors, rule)
    both = (decided.winner >= 0) & (counted_winner >= 0)
    same = (decided.winner[both] == counted_winner[both]).mean() if both.any() else None
    return {
        "method": made.method,
        "kept": int((decided.winner >= 0).sum()),
        "n": votes.n_items,
        "gold": _gold(crowd, made.posteriors, decided.winner),
        "chance": flipped_keep_rate(
            votes, made.priors, made.confusion, made.default_confusion, rule
        ),
        "same_as_counting": None if same is None else float(same),
        "check": {
            "log_loss": check.log_loss,
            "brier": check.brier,
            "calibrated": check.calibrated,
            "sentence": check.sentence,
            "bars": [asdict(bar) for bar in check.bars],
        },
        "converged": made.converged,
    }


def _gold(
    crowd: Crowd, shares: NDArray[np.float64], winner: NDArray[np.integer[Any]] | None
) -> dict[str, Any] | None:
    """Accuracy against known answers: of every label (a tie of labels counts its share), and of
    what is accepted."""
    known = crowd.golds >= 0
    if not known.any():
        return None
    right = share_right(shares[known], crowd.golds[known])
    kept = None if winner is None else kept_accuracy(crowd.golds, winner)
    return {
        "n": int(known.sum()),
        "all": asdict(wilson(float(right.sum()), int(known.sum()))),
        "kept": asdict(kept) if kept else None,
    }
