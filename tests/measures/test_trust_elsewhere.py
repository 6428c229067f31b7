"""A model on data it was not made for, where length may point the other way."""

from dataclasses import replace

import numpy as np
import pytest

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.out_of_domain import lean, longer_wins, other_domain
from measures.trust.significance import Pairs
from tests.measures.trust_worlds import world

HOME, AWAY = 0.75, 0.35  # how often the longer answer wins


def domain(seed, *, longer, right=None, by_length=0.0, n=300):
    """Pairs in which the longer answer wins with probability `longer`. The model is right with
    probability `right` whatever the length, or goes by length in the share `by_length`."""
    rng = np.random.default_rng([seed, int(100 * longer)])
    won = rng.random(n) < longer
    long, short = rng.integers(60, 90, n), rng.integers(20, 50, n)
    good = rng.random(n) < (0.75 if right is None else right)
    good = np.where(rng.random(n) < by_length, won, good)
    return Pairs(
        split="test",
        chosen_scores=np.where(good, 1.0, -1.0) * rng.uniform(0.1, 2, n),
        rejected_scores=np.zeros(n),
        chosen_texts=["x" * int(a if w else b) for a, b, w in zip(long, short, won, strict=True)],
        rejected_texts=["x" * int(b if w else a) for a, b, w in zip(long, short, won, strict=True)],
        prompts=[f"prompt {i}" for i in range(n)],
        confidence=np.ones(n),
        clusters=[f"prompt {i}" for i in range(n)],
    )


def test_a_model_that_holds_elsewhere_is_green_in_nineteen_of_twenty():
    for longer in (0.55, AWAY):
        found = [
            other_domain(domain(seed, longer=HOME), domain(seed, longer=longer))
            for seed in range(20)
        ]
        green = sum(one.verdict is Verdict.GREEN for one in found)
        assert green >= 19, [one.says for one in found if one.verdict is Verdict.RED]


def test_a_clean_world_is_green_and_survives_json():
    found = other_domain(world(300, 1), world(300, 2))
    assert found.verdict is Verdict.GREEN
    assert finding_from_json(finding_to_json(found)) == found


def test_a_model_that_follows_length_is_red_where_length_turns_around():
    """Half its choices go by length; the rest is so good that it still beats a coin."""
    home = domain(1, longer=HOME, right=0.95, by_length=0.4)
    away = domain(1, longer=AWAY, right=0.95, by_length=0.4)
    found = other_domain(home, away)
    assert found.figure.low > 0.5
    assert found.verdict is Verdict.RED
    assert found.facts["length_turned"]
    assert found.facts["lean"] == pytest.approx(0.4, abs=0.12)
    assert "still goes by length" in found.says


def test_a_model_that_is_length_alone_is_worse_than_a_coin_there():
    found = other_domain(domain(2, longer=HOME, by_length=1), domain(2, longer=AWAY, by_length=1))
    assert found.verdict is Verdict.RED
    assert "worse than a coin" in found.says
    assert found.facts["length_turned"]


def test_a_model_that_knows_nothing_there_cannot_be_told_from_a_coin():
    found = other_domain(domain(3, longer=HOME), domain(3, longer=0.5, right=0.5))
    assert found.verdict is Verdict.RED
    assert "cannot be told from a coin" in found.says


def test_noise_is_not_taken_for_a_taste_for_length():
    """A model that is right in 60 % whatever the length prefers the longer far more often than
    people who choose it in 35 %, and has no taste for it."""
    away = domain(4, longer=AWAY, right=0.62, n=900)
    prefers = np.mean([(m > 0) == (len(c) > len(r)) for m, c, r in rows_of(away)])
    assert prefers > longer_wins(away).value + 0.08
    assert other_domain(domain(4, longer=HOME), away).verdict is Verdict.GREEN


def test_too_few_pairs_to_see_a_taste_where_length_turned_are_not_measured():
    found = other_domain(domain(8, longer=HOME), domain(8, longer=0.15, right=0.85, n=60))
    assert found.facts["length_turned"]
    assert found.verdict is Verdict.UNMEASURED, found.says
    assert "too few pairs" in found.says


def rows_of(pairs):
    return zip(pairs.margins, pairs.chosen_texts, pairs.rejected_texts, strict=True)


def test_without_the_other_data_or_with_little_nothing_is_measured():
    home = domain(5, longer=HOME)
    assert other_domain(home, None).verdict is Verdict.UNMEASURED
    assert other_domain(home, domain(5, longer=AWAY, n=40)).verdict is Verdict.UNMEASURED
    alone = other_domain(None, domain(5, longer=AWAY))
    assert alone.verdict is Verdict.GREEN
    assert "The longer answer wins there in" in alone.says


def test_a_model_that_is_always_right_there_is_green_though_nothing_varies():
    found = other_domain(domain(9, longer=HOME), domain(9, longer=AWAY, right=1.0))
    assert found.verdict is Verdict.GREEN, found.says
    assert found.facts["lean"] == 0


def test_pairs_without_a_preferred_side_are_left_out():
    away = domain(6, longer=AWAY, n=200)
    undecided = replace(away, confidence=np.where(np.arange(200) < 170, 0.5, 1.0))
    assert other_domain(None, undecided).verdict is Verdict.UNMEASURED


def test_the_lean_is_counted_by_hand():
    pairs = Pairs(
        split="test",
        chosen_scores=np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
        rejected_scores=np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
        chosen_texts=["long", "long", "long", "s", "s", "s", "same"],
        rejected_texts=["s", "s", "s", "long", "long", "long", "same"],
        prompts=["p"] * 7,
        confidence=np.ones(7),
        clusters=[str(i) for i in range(7)],
    )
    assert lean(pairs).value == pytest.approx(2 / 3 - 1 / 3)
    assert lean(pairs).n == 6
    assert longer_wins(pairs).value == pytest.approx(3.5 / 7)


def test_the_leans_interval_covers_the_truth():
    covered = 0
    for seed in range(100):
        found = lean(domain(seed, longer=0.4, right=0.8, by_length=0.3))
        covered += found.low <= 0.3 <= found.high
    assert covered >= 90


def test_the_lean_is_undefined_where_the_longer_always_wins():
    assert lean(domain(7, longer=1.0)).undefined
