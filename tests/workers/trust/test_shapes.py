"""The shape of a model's scores, and whether a policy's answers lie where it was trained."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import ks_2samp

from measures.calibration import calibration
from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.significance import Pairs
from tests.workers.trust.worlds import CLEAN, Faults, bare, part, turned, world
from workers.trust.calibrated import calibration_line, corrected_error, turned_by_coin
from workers.trust.shapes import (
    Shape,
    histogram,
    ks_distance,
    policy_range,
    score_shape,
    shape_of,
    stability_index,
    tops,
)
from workers.trust.slices import cuts, slices


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


# Over-confident and timid scores are seen; chance in the bins is not taken for error.


def claims(n: int, seed: int = 0, times: float = 1.0) -> Pairs:
    """Pairs of their own prompts whose true log-odds are known; the model says `times` as much."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1.8, n)
    margin = np.where(rng.random(n) < expit(truth), truth, -truth) * times
    return Pairs(
        split="made",
        chosen_scores=margin,
        rejected_scores=np.zeros(n),
        chosen_texts=["a"] * n,
        rejected_texts=["b"] * n,
        prompts=["?"] * n,
        confidence=np.ones(n),
        clusters=[str(k) for k in range(n)],
        replicates=300,
    )


def test_logits_times_four_are_red_and_the_temperature_that_fits_is_four():
    fault = Faults(overconfident=4.0)
    found = calibration_line(world(1_000, faults=fault), world(1_000, seed=1, faults=fault))
    assert found.verdict is Verdict.RED
    assert found.facts["temperature"] == pytest.approx(4, abs=0.6)
    assert found.facts["ece_low"] > 0.05
    assert found.facts["ece_scaled"] < found.facts["ece_with_chance"] / 2
    assert "too much" in found.says


def test_the_clean_model_is_as_sure_as_it_should_be():
    found = calibration_line(world(1_000), world(1_000, seed=1))
    assert found.verdict is Verdict.GREEN
    assert found.facts["temperature"] == pytest.approx(1, abs=0.2)


def test_a_model_that_says_less_than_it_knows_is_red_too():
    found = calibration_line(claims(1_500, times=0.2), claims(1_500, seed=1, times=0.2))
    assert found.verdict is Verdict.RED
    assert found.facts["temperature"] == pytest.approx(0.2, abs=0.04)
    assert "too little" in found.says


def test_what_chance_adds_is_taken_off():
    """The plain error in bins of a perfect model is far from 0; corrected, its mean over 30 worlds
    is under a third of that, and no world is called over 5 points."""
    plain, corrected, low = [], [], []
    for seed in range(30):
        pairs = claims(400, seed=seed)
        margins, labels = turned_by_coin(pairs, seed=seed)
        plain.append(calibration(margins, labels).ece)
        found, *_ = corrected_error(pairs, margins, labels)
        corrected.append(found.value)
        low.append(found.low)
    assert np.mean(plain) > 0.04
    assert np.mean(corrected) < np.mean(plain) / 3
    assert max(low) <= 0.05


def test_an_error_of_sixteen_points_is_estimated_right():
    """By another route: for true log-odds z and a model that says 4 z, the error is the mean of
    |σ(4z) − σ(z)|, which 100,000 draws give."""
    z = np.random.default_rng(1).normal(0, 1.8, 100_000)
    truth = float(np.mean(np.abs(expit(4 * z) - expit(z))))
    found = []
    for seed in range(12):
        pairs = claims(600, seed=seed, times=4.0)
        found.append(corrected_error(pairs, *turned_by_coin(pairs, seed=seed))[0])
    assert np.mean([one.value for one in found]) == pytest.approx(truth, abs=0.015)
    assert sum(one.low < truth < one.high for one in found) >= 8  # 93 of 100 in a longer run


def test_votes_are_labels_as_they_are():
    # A model that claims exactly the share of votes, with margins over a wide range.
    share = np.linspace(0.5, 0.95, 600)
    votes = share + np.random.default_rng(0).normal(0, 0.02, 600)
    pairs = replace(claims(600), chosen_scores=logit(share), confidence=votes.clip(0, 1))
    found = calibration_line(pairs)
    assert found.verdict is Verdict.GREEN
    assert found.facts["ece"] == pytest.approx(0, abs=0.005)
    # The same claims against votes that are all unanimous are too timid.
    assert calibration_line(replace(pairs, confidence=np.ones(600))).verdict is Verdict.RED


def test_five_votes_a_pair_are_calibrated_in_the_clean_world():
    assert calibration_line(world(1_000, votes=5)).verdict is Verdict.GREEN


def test_changing_sides_with_the_labels_changes_nothing():
    pairs = claims(500)
    mirrored = replace(
        turned(replace(pairs, sources=(), order=np.zeros(0))), confidence=np.zeros(500)
    )
    one, other = (turned_by_coin(of, seed=3) for of in (pairs, mirrored))
    # P(first) = 1 where the chosen is first, whichever side that is called.
    assert one[0] == pytest.approx(-other[0])
    assert one[1] == pytest.approx(1 - other[1])


def test_a_model_that_claims_nothing_has_nothing_to_judge():
    found = calibration_line(world(400, faults=Faults(constant=True)))
    assert found.verdict is Verdict.UNMEASURED


def test_few_pairs_are_not_green():
    for n in (10, 60, 120):
        found = calibration_line(part(world(600, faults=CLEAN), slice(0, n)))
        assert found.verdict is Verdict.UNMEASURED
        assert "too few" in found.says


def test_the_diagram_has_a_diagonal_and_the_line_after_temperature():
    found = calibration_line(claims(600), claims(600, seed=1))
    diagram = found.evidence[0]
    assert diagram.diagonal
    assert len(diagram.series) == 2
    assert len(diagram.series[0].x) == 15
    assert "no second split" in calibration_line(claims(600)).says


# A part of the data where the model points the wrong way is named, and chance is not.


def spoilt(pairs, rows):
    """The model is the wrong way round on those rows."""
    rows = np.asarray(rows)
    chosen, rejected = pairs.chosen_scores, pairs.rejected_scores
    return replace(
        pairs,
        chosen_scores=np.where(rows, rejected, chosen),
        rejected_scores=np.where(rows, chosen, rejected),
    )


def busiest(pairs):
    return Counter(pairs.annotators).most_common(1)[0][0]


@pytest.fixture(scope="module")
def fair():
    return world(2_000, seed=2)


def test_clean_pairs_have_no_bad_part(fair):
    found = slices(fair)
    assert found.verdict is Verdict.GREEN
    assert found.facts["tested"] > 20
    assert found.facts["wrong_way"] == []


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (lambda p: [g == "topic 3" for g in p.groups], "the topic “topic 3”"),
        (lambda p: np.array(p.annotators) == busiest(p), "pairs of annotator"),
        (lambda p: [set(s) == {"lab"} for s in p.sources], "answers from lab"),
        (lambda p: np.abs(p.lengths[0] - p.lengths[1]) < 0.1 * np.maximum(*p.lengths), "10 %"),
        (lambda p: p.times >= np.quantile(p.times, 0.75), "pairs of 20"),
    ],
)
def test_the_part_where_scores_point_the_wrong_way_is_named(fair, where, named):
    found = slices(spoilt(fair, where(fair)))
    assert found.verdict is Verdict.RED
    assert named in found.says


def test_disagreement_among_people_is_a_part_of_its_own():
    pairs = world(2_000, seed=2, votes=5)
    found = slices(spoilt(pairs, pairs.confidence < 0.7))
    assert found.verdict is Verdict.RED
    assert "up to 70 % agree" in found.says


def test_a_coin_is_neither_worse_than_a_coin_nor_green():
    found = slices(world(1_000, faults=Faults(blind=True)))
    assert found.verdict is Verdict.UNMEASURED
    assert "than a coin" in found.says


def test_noise_is_seldom_called_worse_than_a_coin():
    """A model of noise is at ½ in every slice, so 2.5 % of such worlds may be red: 5 of 150 are,
    3 of them among the first 20. Four or more of 20 would come by chance once in 700."""
    red = 0
    for seed in range(20):
        pairs = world(400, seed=seed, faults=Faults(blind=True))
        red += slices(pairs).verdict is Verdict.RED
    assert red <= 3


def test_every_row_lies_in_one_part_of_each_kind(fair):
    found = {}
    for kind, _, rows in cuts(fair):
        found[kind] = found.get(kind, 0) + rows.astype(int)
    assert set(found) == {
        "length",
        "difference in length",
        "topic",
        "origin",
        "annotator",
        "time",
    }
    for kind, times in found.items():
        assert (times == 1).all(), kind


def test_slices_show_length_alone_beside_the_model(fair):
    (table,) = [block for block in slices(fair).evidence if block.kind == "table"]
    assert table.columns[-1] == "Length alone"
    longer = np.mean([row[-1] for row in table.rows if row[0] == "topic"])
    one, two = fair.lengths
    assert longer == pytest.approx(np.mean((np.sign(one - two) + 1) / 2), abs=0.02)


def test_few_pairs_have_no_parts(fair):
    assert slices(part(fair, slice(0, 60))).verdict is Verdict.UNMEASURED


def test_without_columns_length_is_still_looked_at(fair):
    found = slices(bare(fair))
    assert found.verdict is Verdict.GREEN
    assert found.facts["tested"] == 6
