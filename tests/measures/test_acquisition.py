"""Which pairs are chosen, in pools where it is known which should be."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from measures.acquisition import (
    D_OPTIMAL,
    DISAGREEMENT,
    ENTROPY,
    STRATEGIES,
    Pairs,
    _bald,
    _nearest,
    choose,
    ensemble,
    head,
)
from measures.selection import pool_of
from measures.textmodel import fit

RIDGE = 3.0


def pairs_make(n: int = 300, width: int = 6, *, asked: int = 60, seed: int = 0) -> Pairs:
    """Directions at random; the first `asked` have up to three votes by a Bradley–Terry model."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, width))
    votes = np.where(np.arange(n) < asked, rng.integers(1, 4, size=n), 0)
    first = rng.binomial(votes, expit(x @ rng.normal(size=width)))
    return Pairs(x, x, np.arange(n) % 50, first.astype(float), votes.astype(float))


def near_duplicates(seed: int) -> tuple[Pairs, np.ndarray]:
    """2,000 pairs, 99 % of them near copies of 20; and which are the rare ones."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(20, 10))
    x = kinds[rng.integers(0, 20, size=2_000)] + 0.02 * rng.normal(size=(2_000, 10))
    rare = np.zeros(2_000, dtype=bool)
    rare[rng.choice(np.arange(200, 2_000), size=20, replace=False)] = True
    x[rare] = 2 * rng.normal(size=(20, 10))
    votes = np.where(np.arange(2_000) < 200, 1, 0)
    first = rng.binomial(votes, expit(x @ rng.normal(size=10)))
    prompt = np.arange(2_000)
    return Pairs(x, x, prompt, first.astype(float), votes.astype(float)), rare


def chosen_of(pairs: Pairs, strategy: str, n: int, **options: object) -> np.ndarray:
    n_asked = int((pairs.votes > 0).sum())
    rows = np.arange(len(pairs.x))
    return choose(
        strategy,
        pairs,
        asked=rows[:n_asked],
        left=rows[n_asked:],
        n=n,
        ridge=RIDGE,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("strategy", [D_OPTIMAL, ENTROPY])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rare_pairs_among_near_duplicates_are_chosen_far_more_often_than_by_chance(
    strategy: str, seed: int
) -> None:
    pairs, rare = near_duplicates(seed)
    chosen = chosen_of(pairs, strategy, 20)
    by_chance = 20 * 20 / 1_800  # 0.22 of 20
    assert rare[chosen].sum() >= 30 * by_chance


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_more_of_a_prompt_than_the_limit_and_fewer_where_it_allows_no_more(
    strategy: str,
) -> None:
    pairs = pairs_make()
    chosen = chosen_of(pairs, strategy, 80, most_per_prompt=2)
    assert len(set(chosen.tolist())) == 80
    assert np.bincount(pairs.prompt[chosen]).max() <= 2
    free = chosen_of(pairs, strategy, 80)
    assert np.bincount(pairs.prompt[free]).max() > 2, "without a limit there are more"
    one = replace(pairs, prompt=np.zeros(len(pairs.x), dtype=np.int64))
    assert len(chosen_of(one, strategy, 80, most_per_prompt=2)) == 2
    assert (chosen >= 60).all(), "only pairs that were not asked"


def test_the_d_optimal_choice_is_that_of_determinants_computed_outright() -> None:
    pairs = pairs_make(120)
    chosen: list[int] = []
    for _ in range(3):
        rest = [row for row in range(60, 120) if row not in chosen]
        sizes = [
            np.linalg.slogdet(
                RIDGE * np.eye(6) + (x := pairs.x[[*range(60), *chosen, row]]).T @ x
            ).logabsdet
            for row in rest
        ]
        chosen.append(int(rest[int(np.argmax(sizes))]))
    assert chosen_of(pairs, D_OPTIMAL, 3).tolist() == chosen


def test_a_pair_that_was_asked_again_tells_the_entropy_nothing() -> None:
    """Six pairs stand where the first left one does: its copies are the last to be chosen."""
    pairs = pairs_make(90)
    pairs.x[54:60] = pairs.x[60]
    copies = replace(pairs, place=pairs.x)
    order = chosen_of(copies, ENTROPY, 30).tolist()
    assert order[-1] == 60


def test_the_nearest_are_found_in_order() -> None:
    place, asked = np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])
    assert np.allclose(_nearest(place, asked), [[1.0, 4.0, 25.0]])
    assert _nearest(place, asked[:0]).tolist() == [[1.0]], "nothing is far from nothing"


def test_the_head_of_shares_is_that_of_single_votes() -> None:
    pairs = pairs_make()
    rows = [
        sign * x
        for x, won, n in zip(pairs.x, pairs.first, pairs.votes, strict=True)
        for sign in [1.0] * int(won) + [-1.0] * int(n - won)
    ]
    assert np.allclose(
        head(pairs, ridge=RIDGE), fit(sparse.csr_matrix(rows), ridge=RIDGE), atol=0.02
    )


def test_each_member_of_the_ensemble_is_fitted_on_its_own_sample() -> None:
    """L-BFGS on the pairs drawn, against the ensemble's two Newton steps."""
    pairs = pairs_make(asked=200)
    weights = head(pairs, ridge=RIDGE)
    found = ensemble(pairs, weights, ridge=RIDGE, seed=4)
    drawn = np.random.default_rng(4).multinomial(200, np.full(200, 1 / 200), len(found))
    for member, times in zip(found, drawn, strict=True):
        sample = replace(
            pairs.only(np.arange(200)), first=pairs.first[:200] * times, votes=pairs.votes[:200]
        )
        expected = head(replace(sample, votes=pairs.votes[:200] * times), ridge=RIDGE)
        assert np.abs(member - expected).max() < 0.15 * np.abs(expected - weights).max() + 0.01


def test_without_votes_the_ensemble_is_of_one_mind() -> None:
    pairs = pairs_make(asked=0)
    assert (ensemble(pairs, np.ones(6), ridge=RIDGE, seed=0) == 1).all()


def test_heads_that_agree_learn_nothing_from_a_vote_and_opposed_ones_a_bit() -> None:
    p = np.array([[0.5, 0.5], [0.9, 0.9], [0.0, 1.0]])
    assert np.allclose(_bald(p), [0, 0, np.log(2)])


def test_disagreement_asks_where_the_heads_differ_most() -> None:
    """One direction has 300 votes of a kind, the other two: a pair along it is what is unknown."""
    rng = np.random.default_rng(2)
    x = np.zeros((330, 2))
    x[:300, 0] = 1.0
    x[298:300] = (0.0, 1.0)
    x[300:315, 0], x[315:, 1] = 1.0, 1.0
    votes = np.where(np.arange(330) < 300, 1.0, 0.0)
    first = votes * (rng.random(330) < 0.6)
    first[298:300] = 1.0, 0.0
    pairs = Pairs(x, x, np.arange(330), first, votes)
    found = choose(
        DISAGREEMENT, pairs, asked=np.arange(300), left=np.arange(300, 330), n=15, ridge=0.3
    )
    assert (found >= 315).all()


def test_a_pair_lies_at_its_prompt_and_its_answers() -> None:
    texts = ["cats are kind and quiet", "dogs are kind and loyal", "rain is loyal to the quiet"]
    asked = ["which pet is best", "which pet is best", "is the best sky red", "the red pet sky"]
    found = pool_of(
        texts,
        *([0, 1, 0, 1], [1, 0, 1, 0]),
        *([1, 0, 1, 0], [1, 1, 1, 1]),
        groups=asked,
        prompts=asked,
        prompt_texts=asked,
    ).place
    assert found is not None
    assert np.allclose(found[0], found[1])
    assert not np.allclose(found[0], found[2]), "another prompt"
