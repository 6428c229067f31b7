"""Replaying votes: does choosing pairs save some? Pools whose answer is planted."""

from dataclasses import replace

import numpy as np
import pytest

from measures.selection import (
    LEAST_PAIRS,
    RANDOM,
    STRATEGIES,
    Curve,
    Pool,
    Replay,
    _calibration_error,
    _Play,
    _saved,
    _votes_until,
    pool_of,
    replay,
)

MOST_VOTES = 300


def pool_make(x: np.ndarray, weights: np.ndarray, *, seed: int, votes: int = 1) -> Pool:
    """Votes by a Bradley–Terry model of `weights`; 50 groups, none of which means anything."""
    drawn = np.random.default_rng(seed).binomial(votes, 1 / (1 + np.exp(-x @ weights)))
    group = np.arange(len(x)) % 50
    return Pool(x, drawn, np.full(len(x), votes), group, group)


def exchangeable(seed: int) -> Pool:
    """Any pair tells as much as any other: directions at random, all of one length."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(1_200, 12)), rng.normal(size=12)
    x *= 3 / np.linalg.norm(x, axis=1, keepdims=True)
    return pool_make(x, weights / np.linalg.norm(weights), seed=seed)


def duplicates(seed: int) -> Pool:
    """Ten copies each of 300 pairs that tell little each, and 1 % of other pairs that tell much."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(3_000, 16)), rng.normal(size=16)
    copies = 0.3 * x[:300][rng.integers(0, 300, size=len(x))]
    rare = rng.random(len(x)) < 0.01
    copies[rare] = 3 * x[rare]
    return pool_make(copies, 3 * weights / np.linalg.norm(weights), seed=seed, votes=5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_exchangeable_pool_gives_no_evidence_that_selection_helps(seed: int) -> None:
    found = replay(exchangeable(seed), most_votes=MOST_VOTES)
    assert found.verdict == "no_evidence"
    assert all(one.verdict in ("", "no_evidence", "worse") for one in found.curves)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_pool_of_duplicates_with_rare_informative_pairs_saves_votes(seed: int) -> None:
    found = replay(duplicates(seed), most_votes=MOST_VOTES)
    assert found.verdict == "saves"
    best = found.best
    assert best is not None
    assert best.strategy == "d_optimal"
    assert best.saved is not None
    assert best.saved_accuracy is not None
    assert best.saved.low is not None
    assert best.saved.low > 0.1
    assert best.saved_accuracy.low is not None
    assert best.saved_accuracy.low > 0


def test_a_grid_of_weak_regularisers_is_refused() -> None:
    """By far too little ridge random looks bad, and everything would save beside it."""
    found = replay(duplicates(1), ridges=(1e-4, 1e-3, 1e-2), most_votes=MOST_VOTES)
    assert found.refused.startswith("random_under_tuned")
    assert found.verdict == "refused"
    assert not found.curves


def test_too_few_pairs_are_refused_with_the_number_needed() -> None:
    pool = exchangeable(0)
    few = Pool(pool.x[:99], pool.first[:99], pool.votes[:99], pool.group[:99], pool.prompt[:99])
    assert replay(few).refused == f"few_voted_pairs n=99 least={LEAST_PAIRS}"
    one = replace(pool, group=np.arange(len(pool.x)) % 2)
    assert replay(one).refused.startswith("few_groups")


def test_votes_that_the_features_do_not_predict_are_refused() -> None:
    pool = exchangeable(0)
    coins = np.random.default_rng(5).integers(0, 2, size=len(pool.x))
    assert replay(replace(pool, first=coins)).refused == "no_signal_to_select"


def test_fewer_than_twenty_seeds_are_an_error() -> None:
    with pytest.raises(ValueError, match="20 seeds"):
        replay(exchangeable(0), seeds=5)


def test_the_same_votes_give_the_same_replay() -> None:
    pool = exchangeable(3)
    assert replay(pool, most_votes=150) == replay(pool, most_votes=150)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_group_is_on_both_sides_no_pair_is_asked_twice_and_labels_are_real_votes(
    strategy: str,
) -> None:
    pool = duplicates(4)
    play = _Play(pool, 0, 2)
    assert not set(pool.group[play.train]) & set(pool.group[play.test])
    assert len(play.test) >= 0.3 * len(pool.x)
    alike = np.isin(pool.share[play.train], (0, 1))
    assert np.array_equal((play.sign > 0)[alike], (pool.share[play.train] == 1)[alike])
    asked, left = np.arange(50), np.arange(50, len(play.x))
    chosen = play._chosen(strategy, asked, left, np.ones(16), 3.0)
    assert len(set(chosen.tolist())) == 50
    assert play._known(asked).votes.sum() == 50, "no vote of a pair that was not asked"
    assert not set(chosen.tolist()) & set(asked.tolist())


def test_the_saving_is_the_share_of_randoms_votes() -> None:
    random = np.array([0.69, 0.66, 0.64, 0.62])  # after 50, 100, 150, 200
    early = np.array([0.66, 0.62, 0.61, 0.60])  # reaches .62 after 100
    assert _votes_until(early, 0.64) == pytest.approx(75)
    assert _saved(early, random) == pytest.approx(0.5)
    assert _saved(random, random) == pytest.approx(0)
    assert _saved(random + 0.1, random) == pytest.approx(0), "never reached"


def test_calibrated_predictions_have_no_calibration_error_and_bold_ones_have() -> None:
    p = np.random.default_rng(0).uniform(size=5_000)
    assert _calibration_error(p, p) == pytest.approx(0)
    assert _calibration_error((p > 0.5).astype(float), np.full(5_000, 0.5)) == pytest.approx(0.5)


def test_features_of_texts_are_of_the_difference_and_know_length() -> None:
    texts = [" ".join(["word"] * n + ["other", "third"]) for n in range(1, 9)]
    there = pool_of(texts, [0, 7], [7, 0], [1, 0], [1, 1], groups=["g", "h"], prompts=["p", "p"])
    assert there.place is not None
    assert np.allclose(there.place[0], there.place[1]), "both lie where their two answers do"
    assert np.allclose(there.x[0], -there.x[1])
    assert there.x[0, -1] < 0, "the first is shorter"
    assert there.prompt.tolist() == [0, 0]


def test_a_saving_by_log_loss_alone_is_no_evidence() -> None:
    found = replay(duplicates(1), most_votes=MOST_VOTES)
    best = found.best
    assert best is not None
    assert best.saved_accuracy is not None
    unsure = replace(best, saved_accuracy=replace(best.saved_accuracy, low=-0.01))
    assert unsure.verdict == "no_evidence"
    assert Replay(1, 1, 1, 20, curves=(Curve(RANDOM, (), (), ()), unsure)).verdict == "no_evidence"
