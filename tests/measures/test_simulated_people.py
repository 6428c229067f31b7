"""Simulated people: their votes are what the rule says."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from measures.simulated_people import middle_of, prefers_first


@pytest.mark.parametrize("win", [0.1, 0.5, 0.62])
def test_the_middle_gives_the_share_by_integration_too(win: float) -> None:
    middle = middle_of(win, of_prompts=1.0, of_people=0.7)
    spread = float(np.sqrt(1.49))
    share, _ = quad(lambda u: expit(middle + u) * norm.pdf(u, scale=spread), -9, 9)
    assert share == pytest.approx(win, abs=1e-6)


def test_votes_on_a_prompt_and_of_a_person_hang_together() -> None:
    prompts, people = 300, 200
    prompt, person = (places.ravel() for places in np.indices((prompts, people)))
    votes = prefers_first(
        np.random.default_rng(3),
        prompt=prompt,
        person=person,
        prompts=prompts,
        people=people,
        of_prompts=1.0,
        of_people=0.7,
        middle=0.0,
    ).reshape(prompts, people)
    alone = 0.5 / np.sqrt([people, prompts])  # of means of independent votes
    assert abs(votes.mean() - 0.5) < 0.05
    assert votes.mean(axis=1).std() > 4 * alone[0]
    assert votes.mean(axis=0).std() > 4 * alone[1]
