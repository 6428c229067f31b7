"""Which prompts a step answers."""

import torch

from workers.rollouts.sampling import derive_seed


class PromptOrder:
    """An endless order over `count` prompts: every pass a new permutation, by seed and position.

    The position is all there is to remember, so a resumed run goes on with the next prompt.
    """

    def __init__(self, count: int, *, seed: int) -> None:
        self._count = count
        self._seed = seed

    def take(self, position: int, n: int) -> list[int]:
        """Indices of the `n` prompts from `position` on."""
        taken: list[int] = []
        while len(taken) < n:
            done, offset = divmod(position + len(taken), self._count)
            generator = torch.Generator().manual_seed(derive_seed(self._seed, "prompts", done))
            order = torch.randperm(self._count, generator=generator).tolist()
            taken.extend(order[offset : offset + n - len(taken)])
        return taken
