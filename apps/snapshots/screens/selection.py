"""The table of a selection replay: a row per strategy, after its last batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.common.numbers import fixed, share
from apps.snapshots.models import SelectionReplay
from apps.snapshots.selectors.selection import (
    STRATEGY_WORDS,
    loss_words,
    saving_words,
    verdict_words,
)

VERDICT_WORDS = {
    "": "the baseline",
    "saves": "saves votes",
    "worse": "worse than random",
    "no_evidence": "no evidence that it helps",
}


@dataclass(frozen=True, slots=True)
class StrategyRow:
    name: str
    log_loss: str
    accuracy: str
    calibration_error: str
    saved: str
    saved_accuracy: str
    worse: str
    verdict: str


@dataclass(frozen=True, slots=True)
class ReplayPage:
    row: SelectionReplay
    words: str
    votes: int
    strategies: list[StrategyRow]


def page_of(row: SelectionReplay) -> ReplayPage:
    points = row.result.get("points") or [0]
    curves = row.result.get("curves", [])
    return ReplayPage(row, verdict_words(row), points[-1], [_strategy(one) for one in curves])


def _strategy(curve: Mapping[str, Any]) -> StrategyRow:
    return StrategyRow(
        name=STRATEGY_WORDS[curve["strategy"]],
        log_loss=fixed(curve["log_loss"][-1], 4),
        accuracy=share(curve["accuracy"][-1]),
        calibration_error=share(curve["calibration_error"][-1]),
        saved=saving_words(curve["saved"]),
        saved_accuracy=saving_words(curve["saved_accuracy"]),
        worse=loss_words(curve["worse"]),
        verdict=VERDICT_WORDS[curve["verdict"]],
    )
