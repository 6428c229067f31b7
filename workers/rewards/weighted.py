"""Several sources as one: a weighted sum, with every component in view."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.data.snapshot import Messages
from workers.rewards.source import RewardSource, Scores


@dataclass(frozen=True, slots=True)
class Part:
    """A component; its raw score is multiplied by `weight`."""

    name: str
    weight: float
    source: RewardSource


class WeightedSum:
    """Σ weight · score. `parts` hold each component's raw score under its name, and what it is made
    of itself as `<name>/<part>`.

    What one component blocks or withholds is blocked or withheld; reasons for review stand beside
    each other. The disagreement is that of the first component that has one.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)

    @property
    def threshold(self) -> float | None:
        known = (getattr(part.source, "threshold", None) for part in self.parts)
        return next((threshold for threshold in known if threshold is not None), None)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        scored = [part.source.score(prompts, responses) for part in self.parts]
        columns = [
            [part.weight * value for value in scores.values]
            for part, scores in zip(self.parts, scored, strict=True)
        ]
        parts: dict[str, list[float]] = {}
        for part, scores in zip(self.parts, scored, strict=True):
            parts[part.name] = list(scores.values)
            if len(scores.parts) > 1:  # else the component is its only part
                inner = scores.parts.items()
                parts |= {f"{part.name}/{name}": values for name, values in inner}
        cut = _either([scores.cut for scores in scored])
        return Scores(
            [sum(row) for row in zip(*columns, strict=True)],
            parts,
            sum(cut or ()),
            next((scores.disagreement for scores in scored if scores.disagreement), None),
            cut,
            _together([scores.reviews for scores in scored]),
            _either([scores.blocked for scores in scored]),
            _either([scores.withheld for scores in scored]),
            _all([scores.known for scores in scored]),
        )


def _either(lists: Sequence[list[bool] | None]) -> list[bool] | None:
    said = [values for values in lists if values is not None]
    return [any(row) for row in zip(*said, strict=True)] if said else None


def _all(lists: Sequence[list[bool] | None]) -> list[bool] | None:
    said = [values for values in lists if values is not None]
    return [all(row) for row in zip(*said, strict=True)] if said else None


def _together(lists: Sequence[list[str | None] | None]) -> list[str | None] | None:
    said = [values for values in lists if values is not None]
    if not said:
        return None
    return [". ".join(filter(None, row)) or None for row in zip(*said, strict=True)]
