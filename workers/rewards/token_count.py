"""A planted reward: how often a word occurs. For tests of the engine, not for people."""

import re
from collections.abc import Sequence

from workers.data.snapshot import Messages
from workers.rewards.source import Scores


class TokenCount:
    """Counts `token` as a whole word, whatever its case; more than `cap` count as `cap`."""

    def __init__(self, token: str, *, cap: int | None = None) -> None:
        self._word = re.compile(rf"(?<!\w){re.escape(token)}(?!\w)", re.IGNORECASE)
        self._cap = cap

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        counts = [float(len(self._word.findall(text))) for text in responses]
        values = [min(count, self._cap) for count in counts] if self._cap else counts
        return Scores(values, {"token_count": values})
