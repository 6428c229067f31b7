"""Graded votes of people who use the scale differently come out on one scale."""

import numpy as np
import pytest

from measures.annotators import normalise_strengths


def test_a_rater_who_uses_twice_the_scale_is_equalised():
    one = np.array([1, -1, 1, 0, -1, 1, 1, -1, 0, 1, -1, 1])
    both = np.concatenate([one, 2 * one])
    z = normalise_strengths(both, [7] * 12 + [8] * 12).z
    assert z[:12] == pytest.approx(z[12:])
    assert (z[:12] ** 2).mean() == pytest.approx(1)


def test_a_vote_for_one_answer_never_becomes_one_for_the_other():
    values = np.array([2, 2, 2, 2, 2, 2, 2, 2, 1, -1])
    assert (np.sign(normalise_strengths(values, [1] * 10).z) == np.sign(values)).all()


def test_who_always_uses_one_strength_keeps_the_side_alone():
    found = normalise_strengths([2, -2] * 5 + [1, -1] * 5, [1] * 10 + [2] * 10)
    assert sorted(set(found.z.tolist())) == [-1, 1]
    assert found.unknown == ()


def test_only_ties_and_few_votes_have_no_unit():
    found = normalise_strengths([0] * 12 + [2, 1], [1] * 12 + [2, 2])
    assert found.unknown == (1, 2)
    assert np.isnan(found.z).all()


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="finite"):
        normalise_strengths([1, float("nan")], [1, 1])
    with pytest.raises(ValueError, match="match"):
        normalise_strengths([1, 2], [1])
