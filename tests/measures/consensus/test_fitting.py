"""Models of the voters: what a fit promises to those who build on it."""

import numpy as np
import pytest

from measures.consensus import METHODS, fit, posteriors_of, votes_from


@pytest.mark.parametrize("method", METHODS)
def test_a_fits_posteriors_are_one_bayes_step_from_its_matrices(method):
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 200)
    items = np.repeat(np.arange(200), 5)
    annotators = rng.integers(0, 12, 1000)
    choices = np.where(rng.random(1000) < 0.8, truth[items], 1 - truth[items])
    votes = votes_from(items, annotators, choices, n_annotators=13)
    found = fit(method, votes)
    again = posteriors_of(votes, found.priors, found.confusion[:12], found.default_confusion)
    assert np.allclose(again, found.posteriors, atol=1e-12)
    assert found.confusion.sum(axis=2) == pytest.approx(np.ones((13, 4)))
    assert found.priors[2:].tolist() == [0, 0]
    assert found.confusion[12] == pytest.approx(found.default_confusion)
