"""Sources that say what was planted, and remember what they were asked."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from measures.messages import Messages
from workers.rewards.source import Scores


@dataclass
class Lengths:
    """Scores a response by its length; fails on a text that holds `fails_on`, and on any while
    `gate` is shut it waits."""

    fails_on: str = ""
    gate: threading.Event | None = None
    batches: list[list[str]] = field(default_factory=list)

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        if self.gate is not None:
            assert self.gate.wait(10)
        self.batches.append(list(responses))
        if self.fails_on and any(self.fails_on in text for text in responses):
            raise ValueError(f"cannot read {self.fails_on}")
        values = [float(len(text)) for text in responses]
        cut = [len(text) > 8 for text in responses]
        return Scores(values, {"length": values}, sum(cut), cut=cut)
