"""Votes of people whose taste differs, on prompts that differ, with a known answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from measures.head_to_head import Votes
from measures.model_ranking import ModelVotes
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


def several_simulated(
    seed: int | Sequence[int],
    strengths: Any,
    *,
    prompts: int = 160,
    people: int = 20,
    taste: float = 0.5,
    of_prompts: float = 0.5,
    left: float = 0.0,
    longer: float = 0.0,
    lengths: Any = None,
    pairs: Any = None,
    ties: float = 0.1,
) -> ModelVotes:
    """One vote a prompt, pairs in turn; each person and each prompt likes each system more or less
    by a normal deviation (in logits). lengths: of each system, in logs."""
    draw = np.random.default_rng(seed)
    values = np.asarray(strengths, dtype=float)
    size = len(values)
    every = pairs or [(i, j) for i in range(size) for j in range(i)]
    chosen = np.array([every[k % len(every)] for k in range(prompts)])
    first, second = chosen[:, 0], chosen[:, 1]
    prompt, person = np.arange(prompts), draw.permutation(np.arange(prompts) % people)
    habit = draw.normal(0, taste, (people, size))[person]
    habit += draw.normal(0, of_prompts, (prompts, size))
    rows = np.arange(prompts)
    side = np.where(draw.permutation(rows % 2) > 0, 0.5, -0.5)
    of = np.zeros(size) if lengths is None else np.asarray(lengths, dtype=float)
    length = of[first] - of[second] + draw.normal(0, 0.3, prompts)
    logits = values[first] - values[second] + habit[rows, first] - habit[rows, second]
    logits += left * side + longer * length
    score = (draw.random(prompts) < expit(logits)).astype(float)
    score[draw.random(prompts) < ties] = 0.5
    return ModelVotes(size, first, second, score, prompt, person, side, length)
