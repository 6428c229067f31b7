"""The model's accuracy with what it is read beside: rules that read little, and people."""

from dataclasses import dataclass
from typing import Protocol

from apps.common.drawing.figures import bounds, words
from measures.trust.findings import Finding, Intervals


class _Label(Protocol):
    low: float | None
    high: float | None
    says: str


class _Ceiling(Protocol):
    single: _Label
    decided: _Label


@dataclass(frozen=True, slots=True)
class Tile:
    label: str
    value: str
    basis: str


def beside_accuracy(accuracy: Finding, ceiling: _Ceiling | None) -> list[Tile]:
    """Empty before an assessment: a ceiling alone says nothing about the model."""
    block = next((one for one in accuracy.evidence if isinstance(one, Intervals)), None)
    if block is None:
        return []
    tiles = [
        Tile(label, words(of.value, block.unit), f"{bounds(of, block.unit)}, n = {of.n:,}")
        for label, of in block.rows
        if of.value is not None
    ]
    decided = ceiling.decided if ceiling else None
    if decided is not None and decided.low is not None and decided.high is not None:
        value = f"{100 * decided.low:.1f}–{100 * decided.high:.1f} %"
        tiles.append(Tile("Ceiling", value, "a second crowd to a perfect model"))
    return tiles if len(tiles) > 1 else []


def ceiling_says(ceiling: _Ceiling | None) -> list[str]:
    """Both ceilings in words; like is compared with like."""
    if ceiling is None:
        return []
    return list(dict.fromkeys((ceiling.decided.says, ceiling.single.says)))
