"""A reward-model suite is reported by category."""

from dataclasses import replace

import numpy as np
import pytest

from measures.intervals import mean_interval
from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.significance import Pairs
from workers.assess.scores import Scored, pairs_of
from workers.data.snapshot import Preference
from workers.trust.out_of_domain import other_domain
from workers.trust.slices import by_category, slices

SIZES = {"chat": 120, "maths": 90, "refusals": 60, "tiny": 3}
RIGHT = {"chat": 0.9, "maths": 0.8, "refusals": 0.2, "tiny": 1.0}  # refusals: the wrong way


def suite(sizes=SIZES, right=RIGHT, seed=0) -> Pairs:
    rng = np.random.default_rng(seed)
    names = [name for name, n in sizes.items() for _ in range(n)]
    good = np.concatenate([np.arange(n) < round(right[name] * n) for name, n in sizes.items()])
    order = rng.permutation(len(names))
    return Pairs(
        split="public_test",
        chosen_scores=np.where(good, 1.0, -1.0)[order],
        rejected_scores=np.zeros(len(names)),
        chosen_texts=["x" * (20 + k % 7) for k in range(len(names))],
        rejected_texts=["x" * (20 + k % 5) for k in range(len(names))],
        prompts=[f"prompt {k}" for k in range(len(names))],
        confidence=np.ones(len(names)),
        clusters=[f"prompt {k}" for k in range(len(names))],
        categories=[names[k] for k in order],
    )


def test_each_category_has_its_share_with_an_interval() -> None:
    found = by_category(suite())
    assert found is not None
    assert {name: (of.value, of.n) for name, of in found.shares.items()} == {
        name: (pytest.approx(RIGHT[name]), n) for name, n in SIZES.items()
    }
    assert found.mean == pytest.approx(np.mean(list(RIGHT.values())))
    for name in ("chat", "maths", "refusals"):
        of = found.shares[name]
        n, p = SIZES[name], RIGHT[name]
        half = 1.96 * np.sqrt(p * (1 - p) / n)  # by hand: as many clusters as pairs
        assert of.low == pytest.approx(p - half, abs=0.03)
        assert of.high == pytest.approx(p + half, abs=0.03)


def test_the_planted_category_is_the_one_that_points_the_wrong_way() -> None:
    found = slices(suite())
    assert found.verdict is Verdict.RED
    assert found.facts["wrong_way"] == ["category: refusals"]
    assert found.facts["categories"]["refusals"]["value"] == pytest.approx(0.2)
    titles = [block.title for block in found.evidence]
    assert titles[-1] == "By category"
    assert finding_from_json(finding_to_json(found)) == found


def test_a_suite_given_as_other_dataset_is_reported_by_category() -> None:
    found = other_domain(None, suite())
    assert "lowest in refusals: 20.0 %" in found.says
    assert [row[0] for row in found.evidence[0].rows] == sorted(SIZES)
    assert found.facts["mean_of_categories"] == pytest.approx(np.mean(list(RIGHT.values())))


def test_pairs_without_a_category_are_told_as_such_and_none_at_all_is_no_table() -> None:
    pairs = suite()
    some = list(pairs.categories)
    some[0] = ""
    assert "(no category)" in by_category(replace(pairs, categories=some)).shares
    assert by_category(replace(pairs, categories=())) is None
    assert by_category(replace(pairs, categories=[""] * len(pairs))) is None
    assert "categories" not in other_domain(None, replace(pairs, categories=())).facts


def test_ties_of_a_soft_label_are_in_no_category() -> None:
    pairs = suite({"chat": 40}, {"chat": 1.0})
    half = replace(pairs, confidence=np.where(np.arange(40) < 10, 0.5, 1.0))
    assert by_category(half).shares["chat"].n == 30


def test_a_row_carries_its_category_to_the_pairs() -> None:
    prompt = [{"role": "user", "content": "Why?"}]
    rows = [Preference(prompt, "a", "b", category="chat"), Preference(prompt, "c", "d")]
    pairs = pairs_of("dev", rows, Scored(np.zeros(4)), replicates=100)
    assert list(pairs.categories) == ["chat", ""]
    assert mean_interval(pairs.credit()).value == 0.5
