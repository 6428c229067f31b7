"""Weights of training rows."""

import numpy as np
import pytest

from measures.splits import effective_sample_size
from measures.weights import (
    capped_weights,
    even_allocation,
    even_weights,
    recency_weights,
    scaled_grades,
)


def test_each_stratum_weighs_the_same_and_the_mean_stays_one() -> None:
    strata = ["long"] * 95 + ["short"] * 5
    w = even_weights([strata], 100)
    assert w.mean() == pytest.approx(1)
    assert w[:95].sum() == pytest.approx(w[95:].sum()) == pytest.approx(50)


def test_two_classifications_are_evened_together() -> None:
    rng = np.random.default_rng(1)
    topic = rng.choice(["x", "y", "z"], 400, p=[0.7, 0.2, 0.1]).tolist()
    length = [rng.choice(["l", "s"], p=[0.9, 0.1] if t == "x" else [0.5, 0.5]) for t in topic]
    w = even_weights([topic, length], 400)
    for strata in (topic, length):
        totals = [w[np.array(strata) == s].sum() for s in sorted(set(strata))]
        assert totals == pytest.approx([400 / len(totals)] * len(totals))


def test_a_stratum_of_one_percent_is_capped_and_the_rest_makes_up_the_mean() -> None:
    strata = ["common"] * 990 + ["rare"] * 10
    made = capped_weights(even_weights([strata], 1000), 5)
    assert made.n_capped == 10
    assert made.weights.max() == 5
    assert made.weights.mean() == pytest.approx(1)
    # By hand: 10 rows at 5 leave 950 for 990 rows.
    assert made.weights[:990] == pytest.approx(np.full(990, 950 / 990))
    # Kish: 1000² / (990 (950/990)² + 10 · 25)
    assert effective_sample_size(made.weights).value == pytest.approx(
        1000**2 / (950**2 / 990 + 250)
    )


def test_nothing_is_capped_where_nothing_is_rare() -> None:
    made = capped_weights([1.0, 2.0, 3.0], 5)
    assert made.n_capped == 0
    assert made.weights == pytest.approx([0.5, 1.0, 1.5])


@pytest.mark.parametrize("cap", [1, 1.5, 3, 100])
def test_no_weight_exceeds_the_cap_whatever_came_in(cap: float) -> None:
    raw = np.random.default_rng(2).lognormal(0, 3, 200)
    made = capped_weights(raw, cap)
    assert made.weights.max() <= cap
    assert made.weights.mean() == pytest.approx(1)
    order = np.argsort(raw)
    assert (np.diff(made.weights[order]) >= -1e-12).all()


def test_too_few_positive_weights_stand_at_the_cap() -> None:
    assert capped_weights([0, 0, 0, 1], 2).weights.tolist() == [0, 0, 0, 2]
    assert capped_weights([], 2).weights.tolist() == []


def test_a_vote_counts_half_after_the_half_life() -> None:
    assert recency_weights([0, 30, 60], 30).tolist() == [1, 0.5, 0.25]
    with pytest.raises(ValueError, match="half_life"):
        recency_weights([1], 0)


def test_what_a_small_stratum_lacks_the_others_give() -> None:
    assert even_allocation([100, 3, 50], 33).tolist() == [15, 3, 15]
    assert even_allocation([2, 2], 10).tolist() == [2, 2]
    assert even_allocation([5, 5, 5], 4).tolist() == [2, 1, 1]
    assert even_allocation([], 4).tolist() == []


def test_a_rater_who_uses_twice_the_scale_counts_like_the_others() -> None:
    rng = np.random.default_rng(3)
    truth = rng.choice([-1.0, 1.0], 400) * rng.choice([0.5, 1.0], 400)
    grades = np.concatenate([truth, 2 * truth])
    scaled = scaled_grades(grades, ["ana"] * 400 + ["wide"] * 400)
    assert scaled[400:] == pytest.approx(scaled[:400], rel=0.02)
    assert np.sign(scaled).tolist() == np.sign(grades).tolist()


def test_one_grade_of_a_newcomer_is_not_blown_up() -> None:
    scaled = scaled_grades([1.0] * 50 + [2.0], ["ana"] * 50 + ["new"])
    assert 1.0 < scaled[-1] < 2.0
    assert scaled_grades([0.0, 0.0], ["a", "b"]).tolist() == [0, 0]
