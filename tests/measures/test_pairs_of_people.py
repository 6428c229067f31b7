"""The mean kappa over pairs of people, and intervals by group."""

import numpy as np
import pytest

from measures.agreement import (
    clustering,
    cohen_kappa,
    gwet_ac1,
    krippendorff_alpha,
    mean_cohen_kappa,
    pair_counts,
    pair_votes,
    percent_agreement,
)
from measures.agreement.clusters import batches
from tests.measures.crowds import pandalm_votes


def votes_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(items, people) choices, −1 for none, as long votes."""
    item, person = np.nonzero(table >= 0)
    return item, person, table[item, person]


def mean_kappa(table: np.ndarray, **more):
    pairs = pair_votes(*votes_of(table))
    counts = pair_counts(pairs, n_annotators=table.shape[1])
    return mean_cohen_kappa(pairs, counts, n_categories=4, **more)


def test_every_two_votes_on_a_comparison_are_a_pair_once():
    pairs = pair_votes([0, 0, 0, 1, 2, 2], [2, 0, 1, 0, 1, 1], [1, 1, 0, 0, 1, 0])
    found = set(zip(pairs.item.tolist(), pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert found == {(0, 0, 1), (0, 0, 2), (0, 1, 2)}  # one person twice on item 2 is no pair
    counts = pair_counts(pairs, n_annotators=3)
    assert counts.n.tolist() == [1, 1, 1]
    assert counts.agreeing.tolist() == [0, 1, 0]


def test_the_mean_is_that_of_each_pairs_own_kappa():
    votes = pandalm_votes()
    kappas = []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        table = np.zeros((4, 4), dtype=int)
        np.add.at(table, (votes[:, a], votes[:, b]), 1)
        kappas.append(cohen_kappa(table, replicates=0).value)
    found = mean_kappa(votes)
    assert found.n_pairs == 3
    assert found.estimate.value == pytest.approx(np.mean(kappas))
    assert sorted(round(k, 2) for k in kappas) == [0.85, 0.86, 0.88]  # as its authors published


def test_its_interval_is_that_of_resampling_comparisons():
    votes = pandalm_votes()[:300]
    found = mean_kappa(votes).estimate
    rng = np.random.default_rng(3)
    drawn = [
        mean_kappa(votes[rng.integers(0, 300, 300)], replicates=0).estimate.value
        for _ in range(400)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.015)
    assert found.high == pytest.approx(high, abs=0.015)


def test_pairs_of_people_weigh_by_what_they_have_in_common():
    votes = np.full((1010, 4), -1)
    rng = np.random.default_rng(0)
    votes[:1000, 0] = votes[:1000, 1] = rng.integers(0, 2, 1000)  # always agree: κ = 1
    votes[1000:, 2] = np.arange(10) % 2
    votes[1000:, 3] = 1 - np.arange(10) % 2  # never agree, evenly: κ = −1
    assert mean_kappa(votes).estimate.value == pytest.approx((1000 - 10) / 1010)


def test_people_with_little_in_common_are_left_out_and_counted():
    votes = np.full((40, 4), -1)
    votes[:20, :2] = np.tile([0, 1], (20, 1)).T.reshape(20, 2) % 2
    votes[20:29, 2:] = 1
    votes[29:, 0] = votes[29:, 3] = 1  # eleven in common, all of them one choice
    found = mean_kappa(votes)
    assert (found.n_pairs, found.n_sparse, found.n_undefined) == (1, 1, 1)


def test_without_a_pair_of_people_it_says_why_there_is_none():
    found = mean_kappa(np.full((9, 2), 1))
    assert found.estimate.value is None
    assert found.estimate.undefined == "no two people have 10 comparisons in common"
    assert "one and the same" in mean_kappa(np.full((30, 2), 1)).estimate.undefined
    nobody = mean_kappa(np.full((3, 2), -1))
    assert nobody.n_pairs == 0


def test_groups_are_used_from_ten_on():
    assert clustering(np.arange(50)).groups is None  # each stands alone
    assert clustering(np.arange(50)).reason is None
    few = clustering(np.arange(50) % 9)
    assert few.by == "comparisons"
    assert few.reason == "only 9 groups, and groups need 10"
    assert clustering(np.arange(50) % 10).by == "groups"


def test_where_groups_are_few_answers_that_recur_are_used():
    labels, first, second = np.zeros(60), np.arange(60) % 12, 12 + np.arange(60) % 7
    assert clustering(labels, (first, second)).by == "answers"
    assert clustering(labels, (np.arange(60), 60 + np.arange(60))).by == "comparisons"
    assert clustering(np.arange(60) % 20, (first, second)).by == "groups"  # groups hold answers


def test_groups_that_hang_together_widen_the_interval():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(40), 25)
    agree = rng.random(40)[group] < 0.5  # all of a group alike
    counts = np.where(agree[:, None], [2, 0], [1, 1])
    alone = percent_agreement(counts)
    together = percent_agreement(counts, groups=group)
    # 40 independent coins, not 1000: five times as wide
    assert (together.high - together.low) / (alone.high - alone.low) == pytest.approx(5, rel=0.2)


def recurring(rng, n_answers: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of answers of very different merit: the clearer a pair, the more people agree."""
    merit = rng.normal(0, 2, n_answers)
    first, step = rng.integers(0, n_answers, n), rng.integers(1, n_answers, n)
    second = (first + step) % n_answers
    share = 1 / (1 + np.exp(merit[second] - merit[first]))
    n_first = rng.binomial(3, share)
    return np.column_stack([n_first, 3 - n_first]), first, second


@pytest.mark.parametrize("statistic", [percent_agreement, krippendorff_alpha, gwet_ac1])
def test_where_answers_recur_the_interval_covers_as_it_says(statistic):
    rng = np.random.default_rng(4)
    # what would come out over answers without end
    truth = statistic(recurring(rng, 3_000, 400_000)[0], replicates=0).value
    covered, covered_alone = 0, 0
    for _ in range(100):
        counts, first, second = recurring(rng, 40, 300)
        found = statistic(counts, answers=(first, second))
        alone = statistic(counts, replicates=300)
        covered += found.low <= truth <= found.high
        covered_alone += alone.low <= truth <= alone.high
    assert covered >= 88
    assert covered > covered_alone + 3  # each comparison for itself: too short


def test_the_mean_kappa_by_answer_is_wider_where_answers_recur():
    rng = np.random.default_rng(5)
    merit = rng.normal(0, 2, 30)
    first, second = rng.integers(0, 15, 400), rng.integers(15, 30, 400)
    share = 1 / (1 + np.exp(merit[second] - merit[first]))
    votes = (rng.random((400, 3)) > share[:, None]).astype(int)
    by_answer = mean_kappa(votes, answers=(first, second)).estimate
    alone = mean_kappa(votes).estimate
    assert by_answer.value == pytest.approx(alone.value)
    assert by_answer.high - by_answer.low > 1.2 * (alone.high - alone.low)


def test_many_groups_dealt_into_batches_vary_as_much():
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(20_000), 3)
    counts = np.where((rng.random(20_000) < 0.7)[group][:, None], [2, 0], [1, 1])
    found = percent_agreement(counts, groups=group)
    assert len(np.unique(batches(group))) == 1_000
    half = 1.96 * np.sqrt(0.7 * 0.3 / 20_000)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)
