"""A source without its caches: what it would say if it were asked again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.data.snapshot import Messages
from workers.rewards.cached import ByRows, CachedReward
from workers.rewards.source import RewardSource, Scores
from workers.rewards.weighted import WeightedSum


@dataclass(frozen=True, slots=True)
class _Asked:
    source: ByRows

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.source.score_rows(self.source.encode(prompts, responses))


def afresh(source: RewardSource) -> RewardSource:
    """The same source, that makes every score anew; also those of a sum's parts."""
    if isinstance(source, CachedReward):
        return _Asked(source.source)
    if isinstance(source, WeightedSum):
        return WeightedSum([replace(part, source=afresh(part.source)) for part in source.parts])
    return source
