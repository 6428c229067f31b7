"""The shape of a model's scores, and whether a policy's answers lie where it was trained."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.ranges import ks_distance, policy_range, stability_index
from measures.trust.shapes import Shape, histogram, score_shape, shape_of, tops
from tests.measures.trust_worlds import Faults, world


@pytest.fixture(scope="module")
def clean():
    return world(400, 1)


def sparse(pairs, seed=0, rate=0.02):
    """Hardly any difference, and now and then a huge one."""
    rng = np.random.default_rng(seed)
    out = [np.where(rng.random(len(pairs)) < rate, rng.normal(0, 60, len(pairs)), 0)] * 2
    return replace(
        pairs,
        chosen_scores=0.01 * pairs.chosen_scores + out[0],
        rejected_scores=0.01 * pairs.rejected_scores - out[1],
    )


def test_clean_scores_are_healthy(clean):
    found = score_shape(clean, sft_scores=clean.rejected_scores, policy_scores=clean.chosen_scores)
    assert found.verdict is Verdict.GREEN, found.says
    assert found.facts["shape"] == "healthy"
    assert [name for name, _ in found.evidence[0].groups] == [
        "chosen",
        "rejected",
        "SFT model",
        "policy",
    ]
    assert finding_from_json(finding_to_json(found)).evidence == found.evidence


def test_clean_scores_raise_at_most_one_alarm_in_twenty():
    verdicts = [score_shape(world(200, seed)).verdict for seed in range(20)]
    assert verdicts.count(Verdict.GREEN) >= 19


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        (Faults(constant=True), "constant"),
        (Faults(saturated=True), "high"),
        (Faults(flipped=True), "flipped"),
        (Faults(blind=True), "unrelated"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_each_bad_model_is_red_and_named(fault, shape, seed):
    found = score_shape(world(400, seed, faults=fault))
    assert found.verdict is Verdict.RED
    assert found.facts["shape"] == shape, found.says


@pytest.mark.parametrize("seed", range(3))
def test_a_few_outliers_are_named_even_where_they_point_the_right_way(clean, seed):
    found = score_shape(sparse(clean, seed))
    assert found.verdict is Verdict.RED
    assert found.facts["shape"] == "sparse", found.says


@pytest.mark.parametrize(
    ("scores", "shape"),
    [
        (np.full(50, -2.0), Shape.CONSTANT),
        (1000 + 1e-6 * np.arange(50), Shape.CONSTANT),
        (1 / (1 + np.exp(-np.linspace(-20, -4, 200))), Shape.LOW),
        (1 / (1 + np.exp(-np.linspace(4, 20, 200))), Shape.HIGH),
        (np.tanh(np.linspace(-30, 30, 200)), Shape.ENDS),
        (np.clip(np.linspace(-9, 3, 200), None, -3), Shape.HIGH),
        (np.array([0.0] * 196 + [40.0] * 4), Shape.SPARSE),
        (np.random.default_rng(0).normal(size=30), Shape.HEALTHY),
        (np.random.default_rng(0).normal(size=3000), Shape.HEALTHY),
        (np.random.default_rng(0).uniform(0, 1, 300), Shape.HEALTHY),
        (np.random.default_rng(0).standard_t(4, 1000), Shape.HEALTHY),
        (1 / (1 + np.exp(-np.random.default_rng(0).normal(0, 2, 500))), Shape.HEALTHY),
        (np.random.default_rng(0).exponential(size=500), Shape.HEALTHY),
    ],
)
def test_shapes_by_hand(scores, shape):
    assert shape_of(scores).shape is shape, shape_of(scores).says


def test_a_flat_score_on_the_policys_answers_is_red_however_good_the_pairs_are(clean):
    found = score_shape(clean, policy_scores=np.full(100, 1.25))
    assert found.verdict is Verdict.RED
    assert "policy's answers" in found.says
    assert found.facts["shape"] == "constant"


def test_scores_that_are_no_numbers_are_red(clean):
    found = score_shape(clean, policy_scores=[1.0, float("nan"), 2.0])
    assert found.verdict is Verdict.RED
    assert "policy" in found.says


def test_few_pairs_are_not_measured_but_a_flat_score_shows(clean):
    assert score_shape(world(20, 1)).verdict is Verdict.UNMEASURED
    assert score_shape(world(10, 1)).verdict is Verdict.UNMEASURED
    assert score_shape(world(20, 1, faults=Faults(constant=True))).verdict is Verdict.RED


def test_a_histogram_holds_every_answer_once_even_of_a_flat_score():
    for values in (np.array([1.0, 2.0, 2.0, 5.0]), np.full(7, 3.0)):
        block = histogram({"all": values})
        assert sum(block.groups[0][1]) == pytest.approx(1)
        assert len(block.edges) == len(block.groups[0][1]) + 1


def test_the_highest_and_lowest_are_listed_once_each():
    prompts, answers = ["p"] * 6, ["a", "b", "b", "c", "d", "e"]
    top, bottom = tops(prompts, answers, [1.0, 9.0, 9.0, 3.0, 2.0, -1.0], k=2)
    assert [(one.answer, one.score) for one in top] == [("b", 9.0), ("c", 3.0)]
    assert [(one.answer, one.score) for one in bottom] == [("e", -1.0), ("a", 1.0)]
    assert tops([], [], []) == ((), ())


# --- where the policy's answers lie ---


def test_answers_like_those_of_training_are_green_in_nineteen_of_twenty():
    green = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        green += policy_range(rng.normal(size=800), rng.normal(size=100)).verdict is Verdict.GREEN
    assert green >= 19


def test_answers_beyond_training_are_red():
    rng = np.random.default_rng(0)
    found = policy_range(
        rng.normal(size=800),
        rng.normal(2, 1, 100),
        rng.integers(100, 900, 800),
        rng.integers(800, 2000, 100),
    )
    assert found.verdict is Verdict.RED
    # P(N(2, 1) > 2.576) = 0.282
    assert found.figure.value == pytest.approx(0.28, abs=0.12)
    assert found.facts["above"] == found.figure.value
    rows = found.evidence[1].rows
    assert [row[0] for row in rows] == ["score", "length in characters"]
    assert rows[1][3] > 0.8
    assert finding_from_json(finding_to_json(found)) == found


def test_answers_longer_than_any_of_training_are_red_though_their_scores_are_usual():
    rng = np.random.default_rng(1)
    usual, longer = rng.integers(100, 900, 800), rng.integers(700, 1500, 100)
    found = policy_range(rng.normal(size=800), rng.normal(size=100), usual, longer)
    assert found.verdict is Verdict.RED
    assert found.facts["outside"] < 0.05 < found.facts["lengths_outside"] == found.figure.value
    same = policy_range(
        rng.normal(size=800), rng.normal(size=100), usual, rng.integers(100, 900, 100)
    )
    assert same.verdict is Verdict.GREEN, same.says


def test_the_share_outside_is_counted_by_hand():
    train = np.arange(1001.0)  # the middle 99 % is 5 to 995
    found = policy_range(train, [4.0, 996.0, 2000.0] + [5.0, 500.0, 995.0] * 33)
    assert found.figure.value == pytest.approx(3 / 102)
    assert found.facts["above"] == pytest.approx(2 / 102)


def test_too_few_answers_or_none_are_not_measured():
    rng = np.random.default_rng(0)
    train = rng.normal(size=800)
    assert policy_range(train, []).verdict is Verdict.UNMEASURED
    assert policy_range(train, rng.normal(size=20)).verdict is Verdict.UNMEASURED
    assert policy_range(train[:100], rng.normal(size=100)).verdict is Verdict.UNMEASURED
    # Twenty answers are enough where all of them lie beyond.
    assert policy_range(train, np.full(20, 9.0)).verdict is Verdict.RED


def test_answers_to_one_prompt_are_not_independent():
    train = np.random.default_rng(0).normal(size=800)
    policy = np.repeat(np.where(np.arange(10) == 0, 9.0, 0.0), 10)
    assert policy_range(train, policy).verdict is Verdict.RED
    prompts = [str(i // 10) for i in range(100)]
    assert policy_range(train, policy, clusters=prompts).verdict is Verdict.UNMEASURED


def test_the_distance_is_scipys_and_the_index_is_zero_for_the_same():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=300), np.round(rng.normal(0.4, 1.3, 120), 1)
    assert ks_distance(one, other) == pytest.approx(ks_2samp(one, other).statistic)
    assert ks_distance([1, 2], [3, 4]) == 1
    assert stability_index(one, one) == pytest.approx(0)
    assert stability_index(one, one + 1) > 0.25
