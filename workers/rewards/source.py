"""What every source of rewards answers: text in, one number per response out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from workers.data.snapshot import Messages


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw scores, one per response, and the parts they are made of (by component).

    `disagreement` is an ensemble's: per response, the deviation over its members after each was
    standardised on its validation answers (measures.ensembles); None from a single source.
    """

    values: list[float]
    parts: Mapping[str, list[float]] = field(default_factory=dict)
    truncated: int = 0  # responses of which the source could not read the end
    disagreement: list[float] | None = None
    cut: list[bool] | None = None  # which responses those are, where the source can say

    def parts_of(self, index: int) -> dict[str, float]:
        return {name: values[index] for name, values in self.parts.items()}


class RewardSource(Protocol):
    """Scores text, so a source may use any tokenizer or none. Same text, same score."""

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores: ...
