"""Drawing by all ranks of a job: each draws every n-th chunk, and all of them hold every answer.

A chunk has its own seed, so the answers are those of one process with the same chunks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from workers import ranks
from workers.rollouts.drawing import Chunk, Drawer, Drawn
from workers.rollouts.local import Responses


@dataclass(slots=True)
class RankedDrawer:
    """`own` draws what falls to this rank. Every rank must draw the same chunks, to the end."""

    own: Drawer
    device: torch.device

    def draw(self, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        """In rounds of one chunk a rank, so that a round can be scored while the next is drawn.

        A draw that fails on one rank fails on all, with its words: a policy that holds numbers
        that are none is passed over by everybody or by nobody.
        """
        for start in range(0, len(chunks), ranks.world()):
            in_turn = chunks[start : start + ranks.world()]
            told = ranks.gathered(self._drawn(in_turn, version=version))
            for answer in told:
                if isinstance(answer, str):
                    raise RuntimeError(answer)
            for chunk, answer in zip(in_turn, told, strict=False):
                yield Drawn(chunk, _moved(answer, self.device), version)

    def _drawn(self, in_turn: Sequence[Chunk], *, version: int) -> Responses | str | None:
        """This rank's answers of a round, or why there are none; None where no chunk is left."""
        mine = in_turn[ranks.rank() : ranks.rank() + 1]
        try:
            for one in self.own.draw(mine, version=version):
                return _moved(one.responses, torch.device("cpu"))
        except RuntimeError as error:
            return str(error)
        return None


def _moved(responses: Responses, device: torch.device) -> Responses:
    tensors: dict[str, Any] = {
        field.name: value.to(device)
        for field in fields(responses)
        if isinstance(value := getattr(responses, field.name), Tensor)
    }
    return replace(responses, **tensors)
