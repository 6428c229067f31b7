"""People who vote by a known rule: to check statistics against a truth, and for demonstrations.

P(a person prefers the first system's answer to a prompt) = σ(μ + u_prompt + u_person), u normal
with a standard deviation in logits for prompts and one for people: people differ in their taste,
and prompts in which system suits them. Votes are independent given these.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit


def prefers_first(
    rng: np.random.Generator,
    *,
    prompt: NDArray[np.int_],
    person: NDArray[np.int_],
    prompts: int,
    people: int,
    of_prompts: float,
    of_people: float,
    middle: float,
) -> NDArray[np.bool_]:
    """Votes, one for each place of `prompt` and `person` (both [votes], numbers from 0): whether
    the first system's answer is preferred. middle: μ, in logits."""
    logits = middle + rng.normal(0, of_prompts, prompts)[prompt]
    logits += rng.normal(0, of_people, people)[person]
    return rng.random(len(prompt)) < expit(logits)


def middle_of(win: float, *, of_prompts: float, of_people: float) -> float:
    """μ, in logits, at which an endless crowd of these standard deviations prefers the first
    system in the share `win`, by bisection."""
    spread = math.hypot(of_prompts, of_people)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(weights @ expit(middle + spread * nodes))
        low, high = (middle, high) if mean < win else (low, middle)
    return low
