"""Votes of people whose taste differs, on prompts that differ, with a known answer."""

import numpy as np

from measures.head_to_head import Votes
from measures.simulated_people import middle_of, prefers_first


def simulated(
    rng: np.random.Generator,
    *,
    prompts: int,
    each: int,
    people: int,
    of_prompts: float,
    of_people: float,
    win: float = 0.5,
) -> Votes:
    """Votes as `measures.simulated_people` has them; the `each` votes on a prompt are of different
    people; sides drawn. `win` is the mean over prompts and people that an endless crowd would
    have."""
    prompt = np.repeat(np.arange(prompts), each)
    person = np.concatenate([rng.permutation(people)[:each] for _ in range(prompts)])
    spread = {"of_prompts": of_prompts, "of_people": of_people}
    score = prefers_first(
        rng,
        prompt=prompt,
        person=person,
        prompts=prompts,
        people=people,
        middle=middle_of(win, **spread),
        **spread,
    ).astype(float)
    left = rng.integers(0, 2, len(prompt)).astype(float)
    return Votes(score, np.zeros(len(score), dtype=bool), prompt, person, left)


def first(votes: Votes, n: int) -> Votes:
    return Votes(*(getattr(votes, name)[:n] for name in Votes.__slots__))
