"""Over-confident and timid scores are seen; chance in the bins is not taken for error."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from measures.calibration import calibration
from measures.trust.calibrated import calibration_line, corrected_error, turned_by_coin
from measures.trust.findings import Verdict
from measures.trust.significance import Pairs
from tests.measures.trust_worlds import CLEAN, Faults, part, turned, world


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
    assert "it claims too much" in found.says


def test_the_clean_model_is_as_sure_as_it_should_be():
    found = calibration_line(world(1_000), world(1_000, seed=1))
    assert found.verdict is Verdict.GREEN
    assert found.facts["temperature"] == pytest.approx(1, abs=0.2)


def test_a_model_that_says_less_than_it_knows_is_red_too():
    found = calibration_line(claims(1_500, times=0.2), claims(1_500, seed=1, times=0.2))
    assert found.verdict is Verdict.RED
    assert found.facts["temperature"] == pytest.approx(0.2, abs=0.04)
    assert "it claims too little" in found.says


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
