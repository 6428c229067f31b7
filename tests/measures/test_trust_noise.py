"""Swapped labels are counted by where the model is sure; clean labels are believed."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from measures.trust.findings import Verdict
from measures.trust.noise import label_noise, swapped_share
from measures.trust.significance import Pairs
from tests.measures.trust_worlds import Faults, part, turned, world


def known(n: int, swapped: float, temperature: float, seed: int = 0) -> Pairs:
    """Labels drawn from the curve itself, each pair of its own prompt."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 3, n)
    share = (1 - 2 * swapped) * expit(truth) + swapped
    margin = np.where(rng.random(n) < share, truth, -truth) * temperature
    return Pairs(
        split="made",
        chosen_scores=margin,
        rejected_scores=np.zeros(n),
        chosen_texts=["a"] * n,
        rejected_texts=["b"] * n,
        prompts=["?"] * n,
        confidence=np.ones(n),
        clusters=[str(k) for k in range(n)],
        replicates=200,
    )


@pytest.mark.parametrize(
    ("swapped", "temperature"), [(0.0, 1.0), (0.1, 1.0), (0.1, 4.0), (0.2, 0.5)]
)
def test_the_share_and_the_temperature_are_recovered(swapped, temperature):
    found = swapped_share(known(4_000, swapped, temperature), np.ones(4_000, bool))
    assert found.share.low - 1e-9 <= swapped <= found.share.high
    assert found.share.value == pytest.approx(swapped, abs=0.02)
    assert found.temperature == pytest.approx(temperature, rel=0.15)


def test_one_label_in_ten_swapped_is_red():
    found = label_noise(world(1_500, faults=Faults(swapped=0.1)))
    assert found.verdict is Verdict.RED
    assert found.figure.low < 0.1 < found.figure.high


def test_all_labels_swapped_point_the_other_way():
    found = label_noise(world(600, faults=Faults(swapped=1.0)))
    assert found.verdict is Verdict.RED
    assert "the labels point the other way" in found.says.lower()
    same = label_noise(turned(world(600)))
    assert "the labels point the other way" in same.says.lower()


def test_clean_labels_are_believed():
    found = label_noise(world(1_500))
    assert found.verdict is Verdict.GREEN
    assert found.figure.high < 0.05


def test_over_confident_scores_are_no_swapped_labels():
    assert label_noise(world(1_500, faults=Faults(overconfident=4))).verdict is Verdict.GREEN


def test_split_votes_are_no_swapped_labels():
    found = label_noise(world(1_500, votes=5))
    assert found.verdict is Verdict.GREEN
    assert found.figure.n < 1_500  # three of five is not clear


def test_a_model_that_is_never_sure_contradicts_nobody():
    for fault in ({"blind": True}, {"constant": True}):
        found = label_noise(world(600, faults=Faults(**fault)))
        assert found.verdict is Verdict.UNMEASURED


def test_few_pairs_are_not_measured():
    assert label_noise(part(world(600), slice(0, 60))).verdict is Verdict.UNMEASURED


def test_votes_that_never_agree_are_no_labels():
    pairs = known(300, 0, 1)
    found = label_noise(replace(pairs, confidence=np.full(300, 0.6)))
    assert found.verdict is Verdict.UNMEASURED
    assert "three quarters" in found.says


def test_the_surest_contradictions_are_there_to_read():
    pairs = world(1_500, faults=Faults(swapped=0.1))
    (texts,) = [block for block in label_noise(pairs).evidence if block.kind == "texts"]
    apart = [one.score - one.other_score for one in texts.examples]
    assert apart == sorted(apart)
    assert apart[0] == pytest.approx(pairs.margins.min())
    assert texts.examples[0].answer in pairs.chosen_texts


def test_rows_that_hang_together_widen_the_interval():
    alone = known(400, 0.1, 1)
    index = np.repeat(np.arange(400), 5)  # every row five times
    copied = replace(
        part(replace(alone, clusters=[str(k) for k in range(400)]), index), replicates=500
    )
    one = swapped_share(alone, np.ones(400, bool)).share
    five = swapped_share(copied, np.ones(2_000, bool)).share
    assert five.high - five.low == pytest.approx(one.high - one.low, abs=0.02)
