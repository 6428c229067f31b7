"""Whether the reward pays for saying a thing: answers with it against answers without."""

from collections import deque
from collections.abc import Sequence

WINDOW = 256  # answers looked back over, or one batch where that is larger
LEAST = 2  # answers of each kind, before anything is said


class Lift:
    """Mean score of the answers that say it less that of those that do not.

    Small batches hold few of either, so the last `WINDOW` answers are looked at; but while a
    policy learns, scores and habits change together, and a difference of means over several
    batches would call that a lift. So answers are compared within their batch: Σ w (m₁ − m₀) / Σ w
    with w = n₁n₀/(n₁ + n₀), the least-squares effect with one intercept per batch. A batch in
    which all say it, or none does, has nothing to compare.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float, int, float]] = deque()  # n₁, Σ₁, n₀, Σ₀

    def add(self, scores: Sequence[float], said: Sequence[bool]) -> None:
        """One batch."""
        own = [score for score, says in zip(scores, said, strict=True) if says]
        rest = [score for score, says in zip(scores, said, strict=True) if not says]
        self._batches.append((len(own), sum(own), len(rest), sum(rest)))
        answers = sum(one + other for one, _, other, _ in self._batches)
        while len(self._batches) > 1 and answers > WINDOW:
            one, _, other, _ = self._batches.popleft()
            answers -= one + other

    def value(self, deviation: float) -> float | None:
        """In `deviation`s of the scores; None under two answers of either kind in batches that
        hold both, or where scores do not vary."""
        both = [batch for batch in self._batches if batch[0] and batch[2]]
        if deviation <= 0 or min(sum(b[0] for b in both), sum(b[2] for b in both)) < LEAST:
            return None
        weights = [n1 * n0 / (n1 + n0) for n1, _, n0, _ in both]
        gaps = [s1 / n1 - s0 / n0 for n1, s1, n0, s0 in both]
        weighed = sum(w * gap for w, gap in zip(weights, gaps, strict=True))
        return weighed / sum(weights) / deviation

    def state(self) -> list[list[float]]:
        return [list(batch) for batch in self._batches]

    def restore(self, state: Sequence[Sequence[float]]) -> None:
        self._batches = deque((int(n1), s1, int(n0), s0) for n1, s1, n0, s0 in state)
