"""A judge beside people: planted faults are named with their size, a fair judge has none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from measures.judging import (
    MOST_FLIPS,
    Bias,
    Judged,
    Worth,
    attacks,
    confidence,
    label,
    named,
    preference,
    worth,
)
from workers.contract.reasons import reason_words

NAN = np.nan


def simulated(
    seed: int,
    *,
    pairs: int = 300,
    votes_each: int = 3,
    length: float = 0.0,
    first: float = 0.0,
    family: float = 0.0,
    taste: float = 0.5,
    noise: float = 0.2,
    sure: float = 1.0,
) -> Judged:
    """length, first, family: what the judge adds to the log odds of the longer, the first and its
    family's answer; taste: what people and judge alike add to the longer one's; sure: by how much
    the judge's log odds are too large."""
    rng = np.random.default_rng(seed)
    lengths = np.round(np.exp(6 + 0.5 * rng.normal(size=(2, pairs))))
    mine = (rng.random((2, pairs)) < 0.4).astype(float)
    longer = np.sign(lengths[0] - lengths[1])
    merit = 2 * rng.normal(size=pairs) + taste * longer
    pair = np.repeat(np.arange(pairs), votes_each)
    liked = merit + 0.5 * rng.normal(size=pairs) + length * longer + family * (mine[0] - mine[1])
    orders = first + np.array([liked, -liked]) + noise * rng.normal(size=(2, pairs))
    return Judged(
        first=expit(sure * orders[0]),
        second=expit(sure * orders[1]),
        length_a=lengths[0],
        length_b=lengths[1],
        family_a=mine[0],
        family_b=mine[1],
        prompt=np.arange(pairs) // 2,
        pair=pair,
        score=(rng.random(len(pair)) < expit(merit[pair])).astype(float),
        person=np.arange(len(pair)) % 11,
    )


def shown(found: Worth) -> dict[str, Bias]:
    return {one.name: one for one in named(found) if one.is_shown}


def hard(judged: Judged) -> Judged:
    return replace(judged, first=np.round(judged.first), second=np.round(judged.second))


def test_a_fair_judge_has_no_fault_named_in_nine_of_ten_worlds() -> None:
    clean = [not shown(worth(simulated(seed, pairs=200))) for seed in range(60)]
    assert np.mean(clean) >= 0.9


@pytest.mark.parametrize("seed", range(3))
def test_a_judge_who_loves_length_is_named_with_how_much_more_than_people(seed: int) -> None:
    judged = simulated(seed, length=2.0)
    found = shown(worth(judged))
    assert set(found) == {"length"}
    # Counted one by one.
    longer = np.sign(judged.length_a - judged.length_b)
    votes = np.bincount(judged.pair, weights=2 * judged.score - 1)
    rows = (longer != 0) & (votes != 0)
    chosen = label(judged.first, judged.second)[rows]
    by_judge = np.mean(np.where(chosen == 0, 0.5, chosen == longer[rows]))
    by_people = np.mean(np.sign(votes[rows]) == longer[rows])
    assert found["length"].size == pytest.approx(by_judge - by_people)
    assert 0.1 < found["length"].low < found["length"].size < 0.4


def test_people_who_love_length_as_much_are_no_fault_of_the_judge() -> None:
    found = worth(simulated(5, taste=2.0))
    assert found.length.people.low > 0.6
    assert not shown(found)


def test_a_judge_that_knows_what_most_people_like_is_not_named_where_each_pair_has_one_vote() -> (
    None
):
    found = [worth(simulated(seed, votes_each=1, taste=2.0)) for seed in range(40)]
    assert np.mean([one.length.difference.value for one in found]) > 0.05
    assert np.mean(["length" in shown(one) for one in found]) <= 0.1
    lovers = [worth(simulated(seed, votes_each=1, taste=0.5, length=2.0)) for seed in range(20)]
    assert np.mean(["length" in shown(one) for one in lovers]) > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_a_judge_who_loves_the_first_answer_is_named_with_the_chance_of_equals(seed: int) -> None:
    judged = simulated(seed, first=1.0)
    found = shown(worth(judged))
    assert set(found) == {"position", "flips"}
    assert found["position"].low < expit(1.0) < found["position"].high
    # Of verdicts alone, without their probabilities, the pull is seen too.
    choices = shown(worth(hard(judged)))
    assert set(choices) == {"position", "flips"}
    assert choices["position"].low > 0.6
    assert choices["flips"].size == found["flips"].size > MOST_FLIPS


def test_a_judge_who_loves_the_second_answer_is_named_too() -> None:
    assert shown(worth(simulated(1, first=-1.0)))["position"].high < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_a_judge_who_loves_its_family_is_named(seed: int) -> None:
    found = worth(simulated(seed, family=2.0))
    assert set(shown(found)) == {"family"}
    one = shown(found)["family"]
    assert 0.08 < one.low < one.size < 0.5
    assert one.size == pytest.approx(found.family.judge.value - found.family.people.value)
    unknown = replace(simulated(seed, family=2.0), family_a=np.full(300, NAN))
    assert reason_words(worth(unknown).family.difference.undefined).startswith("no pair with")


def test_a_judge_who_always_takes_the_first_has_only_flips_and_is_half_right() -> None:
    judged = replace(simulated(1), first=np.ones(300), second=np.ones(300))
    found = worth(judged)
    assert (found.flips.value, found.agreement.value, found.n_abstained) == (1.0, 0.5, 300)
    assert found.position.low > 0.8


def test_a_judge_that_reads_each_answer_alone_has_no_order_to_flip() -> None:
    judged = simulated(2)
    found = worth(replace(judged, second=1 - judged.first), order_free=True)
    assert found.flips.value is found.position.value is None
    assert reason_words(found.flips.undefined).startswith("the judge reads each answer by itself")
    assert {one.name for one in named(found)} == {"length", "family"}


def test_a_judge_that_knows_the_merits_is_under_the_ceiling_and_above_people() -> None:
    judged = simulated(3, pairs=2_000, votes_each=4)
    found = worth(judged)
    assert found.people.low < found.agreement.value <= found.ceiling.high
    assert found.ceiling.low == pytest.approx(found.people.value)


def test_a_judge_of_one_mind_with_everybody_has_an_interval() -> None:
    judged = simulated(3)
    agreed = replace(judged, score=(label(judged.first, judged.second) >= 0)[judged.pair] * 1.0)
    found = worth(replace(agreed, first=agreed.score[::3], second=1 - agreed.score[::3]))
    assert found.agreement.value == 1
    assert found.agreement.low < 1


def test_an_overconfident_judge_is_calibrated_on_other_pairs() -> None:
    judged = simulated(4, pairs=1_200, sure=3.0)
    tune = np.arange(1_200) < 600
    found = worth(judged, tune=tune)
    assert found.temperature.value > 2
    assert found.calibration.n == 600
    assert found.calibration.ece < 0.06
    # Where it is sure, single votes are that often as it says.
    sure = found.confidence[judged.pair]
    chosen = label(judged.first, judged.second)[judged.pair]
    high = (sure > 0.8) & ~tune[judged.pair]
    right = (chosen[high] > 0) == (judged.score[high] > 0.5)
    assert right.mean() == pytest.approx(sure[high].mean(), abs=0.04)
    assert worth(judged).temperature.undefined == "no_pairs"
    assert worth(judged).confidence is None


def test_preferences_cancel_the_order_and_labels_need_both_orders() -> None:
    first = np.array([0.9, 0.9, 0.1, 0.5, NAN, 0.2])
    second = np.array([0.2, 0.9, 0.9, 0.5, 0.1, 0.1])
    assert preference(first, second) == pytest.approx([0.85, 0.5, 0.1, 0.5, 0.5, 0.55])
    assert label(first, second).tolist() == [1, 0, -1, 0, 0, 0]
    sure = confidence(first, second, 1.0)
    assert sure == pytest.approx([0.85, 0, 0.9, 0, 0, 0])
    assert (confidence(first, second, 3.0) <= sure).all()


def test_what_cannot_be_read_is_counted_and_abstains() -> None:
    judged = simulated(6)
    gone = np.where(np.arange(300) < 30, NAN, judged.first)
    found = worth(replace(judged, first=gone))
    assert found.n_unreadable == 30
    assert found.n_abstained >= 30
    assert found.flips.n == 270


def test_under_twenty_pairs_with_votes_nothing_is_said() -> None:
    judged = simulated(7)
    few = judged.pair < 19
    found = worth(
        replace(judged, pair=judged.pair[few], score=judged.score[few], person=judged.person[few])
    )
    assert reason_words(found.undefined).startswith("too few pairs with votes and verdicts: 19")
    assert named(found) == []


def test_each_part_says_itself_why_it_is_missing() -> None:
    judged = simulated(8, votes_each=1)
    alike = replace(judged, length_a=judged.length_b)
    found = worth(alike)
    assert found.people.value is found.ceiling is None
    assert reason_words(found.people.undefined) == "no comparison has two votes"
    assert found.length.difference.undefined
    assert found.agreement.low is not None
    ties = worth(replace(judged, score=np.full(300, 0.5)))
    assert ties.agreement.undefined
    assert ties.people.undefined


def test_an_attack_counts_the_verdicts_it_turned() -> None:
    before = np.array([0.2, 0.4, 0.9, 0.7, 0.6, 0.5])
    after = np.array([0.6, 0.4, 0.9, 0.3, 0.6, 0.5])
    toward = np.array([True, True, True, False, False, False])
    found = attacks(before, after, toward, ["pad"] * 3 + ["flatter"] * 3)
    assert {name: (one.value, one.n) for name, one in found.items()} == {
        "pad": (0.5, 2),  # the third pair preferred it before
        "flatter": (pytest.approx(1 / 3), 3),
    }
    with pytest.raises(ValueError, match="equally long"):
        attacks(before, after, toward, ["pad"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": np.full(300, 1.5)},
        {"second": np.zeros(3)},
        {"score": np.zeros(3)},
        {"score": np.full(900, 0.3)},
        {"pair": np.full(900, 300)},
    ],
)
def test_what_is_no_judgement_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"long|score|pair|verdict"):
        replace(simulated(1), **wrong)
