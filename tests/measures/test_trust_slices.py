"""A part of the data where the model points the wrong way is named, and chance is not."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from measures.trust.findings import Verdict
from measures.trust.slices import cuts, slices
from tests.measures.trust_worlds import Faults, bare, part, world


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
def clean():
    return world(2_000, seed=2)


def test_clean_pairs_have_no_bad_part(clean):
    found = slices(clean)
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
def test_the_part_where_scores_point_the_wrong_way_is_named(clean, where, named):
    found = slices(spoilt(clean, where(clean)))
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
    assert "not shown to be better than a coin" in found.says


def test_noise_is_seldom_called_worse_than_a_coin():
    """A model of noise is at ½ in every slice, so 2.5 % of such worlds may be red: 5 of 150 are,
    3 of them among the first 20. Four or more of 20 would come by chance once in 700."""
    red = 0
    for seed in range(20):
        pairs = world(400, seed=seed, faults=Faults(blind=True))
        red += slices(pairs).verdict is Verdict.RED
    assert red <= 3


def test_every_row_lies_in_one_part_of_each_kind(clean):
    found = {}
    for kind, _, rows in cuts(clean):
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


def test_slices_show_length_alone_beside_the_model(clean):
    (table,) = [block for block in slices(clean).evidence if block.kind == "table"]
    assert table.columns[-1] == "Length alone"
    longer = np.mean([row[-1] for row in table.rows if row[0] == "topic"])
    one, two = clean.lengths
    assert longer == pytest.approx(np.mean((np.sign(one - two) + 1) / 2), abs=0.02)


def test_few_pairs_have_no_parts(clean):
    assert slices(part(clean, slice(0, 60))).verdict is Verdict.UNMEASURED


def test_without_columns_length_is_still_looked_at(clean):
    found = slices(bare(clean))
    assert found.verdict is Verdict.GREEN
    assert found.facts["tested"] == 6
