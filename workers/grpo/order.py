"""Which prompts a step of TRL's loop sees."""

from collections.abc import Iterator

from torch.utils.data import Sampler

from workers.rollouts.prompt_order import PromptOrder


class GroupOrder(Sampler[int]):
    """Indices of prompts for a whole run: each `group_size` times in a row, each batch of `groups`
    prompts `repeats` times. Known by position alone, so that a resumed run goes on where it was."""

    def __init__(
        self, count: int, *, groups: int, group_size: int, rollouts: int, repeats: int, seed: int
    ) -> None:
        self.order = PromptOrder(count, seed=seed)
        self.groups = groups
        self.group_size = group_size
        self.rollouts = rollouts
        self.repeats = repeats

    def __iter__(self) -> Iterator[int]:
        for rollout in range(self.rollouts):
            prompts = self.order.take(rollout * self.groups, self.groups)
            batch = [index for index in prompts for _ in range(self.group_size)]
            for _ in range(self.repeats):
                yield from batch

    def __len__(self) -> int:
        return self.rollouts * self.repeats * self.groups * self.group_size
