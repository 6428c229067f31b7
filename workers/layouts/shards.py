"""Which rows of a step a rank computes, and in which parts.

Every rank holds the rows of the whole step and takes its own of them, so that nothing need be asked
to know what the step's loss is divided by. Gradients are then summed over the ranks: the step is
that of one process, however its rows were dealt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers import ranks
from workers.contract.jobs import DATA, ONE
from workers.data.batches import parts_under, rectangles


@dataclass(frozen=True, slots=True)
class TakenPart:
    """Indices of a step's rows that are computed together. One that does not count is computed all
    the same and multiplied by 0: where weights are split, all ranks must call the model equally
    often, or they wait for each other for ever."""

    rows: list[int]
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Shares:
    """How the rows of a step are dealt to `world` ranks, of which this is `rank`. `even`: as many
    parts on every rank, each of them one rectangle."""

    rank: int = 0
    world: int = 1
    even: bool = False

    @classmethod
    def of(cls, layout: str) -> "Shares":
        """Of this process."""
        if layout == ONE:
            return cls()
        return cls(ranks.rank(), ranks.world(), even=layout != DATA)

    def parts(
        self,
        lengths: Sequence[tuple[int, ...]],
        *,
        budget: int | None,
        at_least: int = 1,
        row_length: int | None = None,
    ) -> list[TakenPart]:
        """This rank's parts of a step's rows, given by the lengths of their texts: as
        `parts_under`, with `at_least` so many over all ranks together."""
        under: Any = {"budget": budget, "row_length": row_length}
        if self.world == 1:
            return [TakenPart(p) for p in parts_under(lengths, at_least=at_least, **under)]
        each = -(-at_least // self.world)
        dealt = [
            [
                TakenPart([own[i] for i in part])
                for part in parts_under(
                    [lengths[i] for i in own], at_least=each, one_rectangle=self.even, **under
                )
            ]
            for own in self._hands(lengths)
        ]
        mine = dealt[self.rank]
        shortest = min(range(len(lengths)), key=lambda i: max(lengths[i]))
        wanted = max(map(len, dealt)) if self.even else 1
        return mine + [TakenPart([shortest], counts=False)] * (wanted - len(mine))

    def rectangles(self, lengths: Sequence[int]) -> list[list[int]]:
        """Indices of a part's texts in the groups the model reads, longest first."""
        if self.even:
            return [sorted(range(len(lengths)), key=lambda i: -lengths[i])]
        return rectangles(lengths)

    def rounds(self, count: int) -> int:
        """`count` pieces of work that ranks take in turns, filled up so that each has as many."""
        return -(-count // self.world) * self.world

    def _hands(self, lengths: Sequence[tuple[int, ...]]) -> list[list[int]]:
        """The rows of each rank: dealt by length and back again, so that all have about as much."""
        order = sorted(range(len(lengths)), key=lambda i: (-max(lengths[i]), -min(lengths[i]), i))
        hands: list[list[int]] = [[] for _ in range(self.world)]
        for place, index in enumerate(order):
            lap, seat = divmod(place, self.world)
            hands[seat if lap % 2 == 0 else self.world - 1 - seat].append(index)
        return hands


ALONE = Shares()
