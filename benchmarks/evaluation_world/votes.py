"""Votes of people whose taste differs, on prompts that differ, with a known answer."""

import math

import numpy as np
from scipy.special import expit

from measures.head_to_head import Votes


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
