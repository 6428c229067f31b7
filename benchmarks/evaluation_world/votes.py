"""Votes of people whose taste differs, on prompts that differ, with a known answer."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from measures.head_to_head import Votes
from measures.model_ranking import ModelVotes


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
    """P(the first system's answer is better) = σ(μ + u_prompt + u_person), u normal with these
    standard deviations in logits; the `each` votes on a prompt are of different people; sides
    drawn. `win` is the mean over prompts and people that an endless crowd would have: μ by
    bisection."""
    prompt = np.repeat(np.arange(prompts), each)
    person = np.concatenate([rng.permutation(people)[:each] for _ in range(prompts)])
    taste = _middle(win, math.hypot(of_prompts, of_people))
    logits = taste + rng.normal(0, of_prompts, prompts)[prompt]
    logits += rng.normal(0, of_people, people)[person]
    score = (rng.random(len(prompt)) < expit(logits)).astype(float)
    left = rng.integers(0, 2, len(prompt)).astype(float)
    return Votes(score, np.zeros(len(score), dtype=bool), prompt, person, left)


def first(votes: Votes, n: int) -> Votes:
    return Votes(*(getattr(votes, name)[:n] for name in Votes.__slots__))


def _middle(win: float, spread: float) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(weights @ expit(middle + spread * nodes))
        low, high = (middle, high) if mean < win else (low, middle)
    return low


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
