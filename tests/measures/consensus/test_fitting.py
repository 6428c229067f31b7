"""Models of the voters: what a fit finds, and what it must not be moved by."""

from dataclasses import replace

import numpy as np
import pytest

from measures.consensus import (
    METHODS,
    Votes,
    fit,
    majority,
    posteriors_of,
    share_right,
    votes_from,
    wawa,
    winners,
)
from tests.measures.consensus.crowds import accuracy, coins, people, real_crowd, simulated

EVERY = pytest.mark.parametrize("method", METHODS)


@EVERY
def test_a_fits_posteriors_are_one_bayes_step_from_its_matrices(method):
    votes, _ = simulated(1, people(1, 12), n_items=200)
    found = fit(method, replace(votes, n_annotators=13))
    again = posteriors_of(votes, found.priors, found.confusion[:12], found.default_confusion)
    assert again == pytest.approx(found.posteriors, abs=1e-12)
    assert found.confusion.sum(axis=2) == pytest.approx(np.ones((13, 4)))
    assert found.priors[2:].tolist() == [0, 0]
    assert found.confusion[12] == pytest.approx(found.default_confusion)
    assert found.reliability == pytest.approx(
        [found.priors @ np.diag(matrix) for matrix in found.confusion]
    )


@EVERY
def test_accuracies_are_recovered_from_many_votes(method):
    q = np.array([0.95, 0.85, 0.75, 0.65, 0.55, 0.5])
    votes, _ = simulated(2, coins(*q), n_items=4_000)
    assert fit(method, votes).reliability == pytest.approx(q, abs=0.03)


@EVERY
def test_posteriors_are_calibrated_on_a_crowd_that_errs_independently(method):
    votes, truth = simulated(3, people(3, 40), n_items=6_000)
    found = fit(method, votes).posteriors
    claim, right = found.max(axis=1), winners(found) == truth
    for low, high in ((0.5, 0.7), (0.7, 0.9), (0.9, 0.97), (0.97, 1.0)):
        inside = (claim > low) & (claim <= high)
        assert right[inside].mean() == pytest.approx(claim[inside].mean(), abs=0.03)


@EVERY
def test_models_beat_majority_where_people_differ(method):
    votes, truth = simulated(4, coins(*[0.92] * 8, *[0.55] * 22), n_items=1_500)
    better = accuracy(fit(method, votes).posteriors, truth)
    assert better > accuracy(majority(votes).shares, truth) + 5


@EVERY
def test_renumbering_items_and_annotators_renumbers_the_answer(method):
    votes, _ = simulated(5, people(5, 30, k=3), n_items=300)
    rng = np.random.default_rng(0)
    items, staff, order = rng.permutation(300), rng.permutation(30), rng.permutation(len(votes))
    other = votes_from(
        items[votes.items][order],
        staff[votes.annotators][order],
        votes.choices[order],
    )
    plain, renumbered = fit(method, votes), fit(method, other)
    assert renumbered.posteriors[items] == pytest.approx(plain.posteriors, abs=1e-9)
    assert renumbered.confusion[staff] == pytest.approx(plain.confusion, abs=1e-9)


@EVERY
def test_exchanging_a_and_b_exchanges_the_answer(method):
    votes, _ = simulated(6, people(6, 25, k=3), n_items=300, balance=(0.6, 0.3, 0.1))
    swapped = np.array([1, 0, 2, 3])
    other = replace(votes, choices=swapped[votes.choices])
    assert fit(method, other).posteriors[:, swapped] == pytest.approx(
        fit(method, votes).posteriors, abs=1e-9
    )


@EVERY
def test_a_crowd_twice_over_has_the_same_winners_and_the_same_ranking(method):
    votes, _ = simulated(7, coins(0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6), n_items=300)
    double = Votes(
        np.concatenate([votes.items, votes.items + 300]),
        np.concatenate([votes.annotators] * 2),
        np.concatenate([votes.choices] * 2),
        600,
        votes.n_annotators,
        votes.known,
    )
    once, twice = fit(method, votes), fit(method, double)
    assert twice.posteriors[:300] == pytest.approx(twice.posteriors[300:], abs=1e-9)
    assert (winners(once.posteriors) == winners(twice.posteriors[:300])).mean() > 0.97
    for found in (once, twice):
        assert found.reliability[:2].min() > found.reliability[4:].max()


@EVERY
def test_somebody_who_is_always_wrong_turns_no_labels_round(method):
    votes, truth = simulated(8, coins(0.85, 0.8, 0.8, 0.75, 0.75, 0.03), n_items=600, per_item=6)
    found = fit(method, votes)
    assert accuracy(found.posteriors, truth) > 88
    # MACE has nobody who knows and lies: the worst it can say is that they guess.
    assert found.reliability[-1] < (0.55 if method == "mace" else 0.35)
    assert found.reliability[:-1].min() > 0.65


@EVERY
def test_a_third_of_coin_flippers_and_one_sided_clickers_is_found_out(method):
    left = np.array([[[0.97, 0.03], [0.97, 0.03]]])
    matrices = np.concatenate([people(9, 24), coins(*[0.5] * 8), *[left] * 2])
    votes, truth = simulated(9, matrices, n_items=1_500)
    found = fit(method, votes)
    assert found.reliability[24:].max() < np.median(found.reliability[:24])
    assert accuracy(found.posteriors, truth) > accuracy(majority(votes).shares, truth)


@EVERY
def test_where_nearly_everything_is_a_the_prior_learns_it(method):
    votes, truth = simulated(10, people(10, 40), n_items=1_500, balance=(0.93, 0.07))
    found = fit(method, votes)
    assert found.priors[0] == pytest.approx(0.93, abs=0.04)
    assert accuracy(found.posteriors, truth) > accuracy(majority(votes).shares, truth) + 5


def test_a_habit_that_everybody_has_is_not_taken_for_a_truth():
    """Everybody takes some of the Bs for As; A and B are right equally often."""
    q = np.random.default_rng(16).beta(8, 3, size=40)
    matrices = np.array([[[x, 1 - x], [1 - 0.85 * x, 0.85 * x]] for x in q])
    votes, truth = simulated(16, matrices, n_items=1_500)
    found = fit("dawid_skene", votes)
    assert found.priors[0] == pytest.approx(0.5)
    assert accuracy(found.posteriors, truth) > accuracy(majority(votes).shares, truth) - 0.5


@EVERY
def test_where_a_and_b_are_about_even_they_get_one_prior(method):
    votes, _ = simulated(11, people(11, 40), n_items=1_000)
    found = fit(method, votes)
    assert found.priors[:2] == pytest.approx([0.5, 0.5], abs=1e-12)


@EVERY
def test_a_tie_of_votes_between_alike_people_stays_open(method):
    # Everybody has the same record; item 40 got one vote for each side.
    items = np.append(np.repeat(np.arange(40), 2), [40, 40])
    annotators = np.append(np.tile([0, 1], 40), [0, 1])
    choices = np.append(np.repeat(np.arange(40) % 2, 2), [0, 1])
    found = fit(method, votes_from(items, annotators, choices))
    assert winners(found.posteriors)[40] == -1
    assert winners(found.posteriors)[:40].tolist() == [0, 1] * 20


@EVERY
def test_one_vote_makes_its_choice_likely_and_no_more(method):
    found = fit(method, votes_from([0], [0], [1]))
    assert winners(found.posteriors).tolist() == [1]
    assert 0.5 < found.posteriors[0, 1] < 0.95


@EVERY
@pytest.mark.parametrize("n_items", [0, 3])
def test_no_votes_give_even_priors(method, n_items):
    empty = np.zeros(0, dtype=int)
    found = fit(method, votes_from(empty, empty, empty, n_items=n_items, n_annotators=2))
    assert found.posteriors.shape == (n_items, 4)
    assert found.priors == pytest.approx([0.5, 0.5, 0, 0])
    assert found.posteriors == pytest.approx(np.tile([0.5, 0.5, 0, 0], (n_items, 1)))
    assert found.confusion == pytest.approx(np.stack([found.default_confusion] * 2))


@EVERY
def test_one_annotator_alone_is_believed_but_not_certain(method):
    found = fit(method, votes_from(np.arange(50), np.zeros(50, int), np.arange(50) % 2))
    assert winners(found.posteriors).tolist() == [0, 1] * 25
    assert found.posteriors.max() < 0.999


@EVERY
def test_all_votes_alike_give_that_choice(method):
    votes = votes_from(np.repeat(np.arange(30), 3), np.tile(np.arange(3), 30), np.zeros(90, int))
    found = fit(method, votes)
    assert (winners(found.posteriors) == 0).all()
    assert np.isfinite(found.log_likelihood)


@EVERY
def test_only_one_choice_offered_is_still_a_model(method):
    alone = Votes(
        np.array([0, 1]),
        np.array([0, 0]),
        np.array([1, 1]),
        2,
        1,
        np.array([False, True, False, False]),
    )
    assert fit(method, alone).posteriors[:, 1] == pytest.approx([1, 1])


@EVERY
def test_a_warm_start_comes_to_the_same_answer_in_fewer_steps(method):
    votes, _ = simulated(12, people(12, 40, k=3), n_items=1_000, balance=(0.45, 0.45, 0.1))
    early = fit(method, votes.subset(votes.items < 980))
    cold, warm = fit(method, votes), fit(method, votes, start=early)
    assert (winners(cold.posteriors) == winners(warm.posteriors)).mean() > 0.99
    assert warm.posteriors == pytest.approx(cold.posteriors, abs=0.05)
    assert warm.iterations < cold.iterations


@EVERY
def test_a_warm_start_takes_in_new_people_new_items_and_a_new_choice(method):
    first, _ = simulated(13, people(13, 10), n_items=200)
    second, _ = simulated(14, people(14, 14, k=3), n_items=260)
    warm, cold = fit(method, second, start=fit(method, first)), fit(method, second)
    assert warm.confusion.shape == (14, 4, 4)
    assert (winners(warm.posteriors) == winners(cold.posteriors)).mean() > 0.97


def test_a_model_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="not glad"):
        fit("glad", votes_from([0], [0], [0]))


def test_one_coin_reliability_by_hand():
    """Two people agree on everything: certain posteriors make q = (n + 4) / (n + 5.5)."""
    items, annotators = np.repeat(np.arange(60), 4), np.tile(np.arange(4), 60)
    choices = np.repeat(np.arange(60) % 2, 4)
    found = fit("one_coin", votes_from(items, annotators, choices))
    assert found.reliability == pytest.approx([64 / 65.5] * 4, abs=1e-4)
    assert found.default_confusion[0, :2] == pytest.approx([4 / 5.5, 1.5 / 5.5])


def test_the_reference_crowd_of_the_specification():
    """10 % coin-flippers, honest people Beta(7, 2): majority 0.90, one-coin 0.94 right, and a
    posterior of 0.9 keeps 82 % at 0.985.
    """
    q = np.random.default_rng(2).beta(7, 2, size=100)
    q[:10] = 0.5
    votes, truth = simulated(15, coins(*q), n_items=20_000)
    found = fit("one_coin", votes).posteriors
    kept = found.max(axis=1) >= 0.9
    assert accuracy(majority(votes).shares, truth) == pytest.approx(90.5, abs=1.5)
    assert accuracy(found, truth) == pytest.approx(94.1, abs=1.5)
    assert kept.mean() == pytest.approx(0.82, abs=0.04)
    assert accuracy(found[kept], truth[kept]) == pytest.approx(98.5, abs=0.5)


@EVERY
def test_a_single_tie_among_thousands_of_votes_hardly_moves_a_label(method):
    votes, truth = simulated(16, coins(*np.linspace(0.5, 0.9, 20)), n_items=1_000)
    choices = votes.choices.copy()
    choices[0] = 2
    other = votes_from(votes.items, votes.annotators, choices)
    before, after = fit(method, votes).posteriors, fit(method, other).posteriors
    assert (winners(before) == winners(after)).mean() > 0.99
    assert accuracy(after, truth) == pytest.approx(accuracy(before, truth), abs=0.3)


# Votes as index vectors, and counting them.


def test_sizes_and_known_choices_follow_from_the_votes():
    votes = votes_from([0, 2], [1, 0], [0, 2])
    assert (votes.n_items, votes.n_annotators, len(votes)) == (3, 2, 2)
    assert votes.known.tolist() == [True, True, True, False]
    assert votes.counts().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_no_votes_at_all_are_votes_too():
    votes = votes_from(np.zeros(0, int), np.zeros(0, int), np.zeros(0, int))
    assert (votes.n_items, votes.n_annotators, len(votes)) == (0, 0, 0)
    assert votes.known.tolist() == [True, True, False, False]


def test_a_subset_keeps_the_numbers_of_items_and_annotators():
    votes = votes_from([0, 1, 2], [0, 1, 2], [0, 0, 0])
    part = votes.subset(votes.items > 1)
    assert (len(part), part.n_items, part.n_annotators) == (1, 3, 3)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (([0], [0, 1], [0]), "differ in length"),
        (([-1], [0], [0]), "items must lie between"),
        (([0], [0], [4]), "choices must lie between"),
        (([0.5], [0], [0]), "whole numbers"),
        (([[0]], [0], [0]), "a vector"),
    ],
)
def test_what_is_not_a_list_of_votes_is_refused(vectors, message):
    with pytest.raises(ValueError, match=message):
        votes_from(*vectors)


def test_an_item_beyond_the_stated_number_is_refused():
    with pytest.raises(ValueError, match="0 and 1"):
        votes_from([2], [0], [0], n_items=2)


def test_majority_leaves_a_tie_of_votes_open():
    votes = votes_from([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [0, 1, 0, 1, 1], n_items=3)
    found = majority(votes)
    assert found.winner.tolist() == [-1, 1, -1]
    assert found.shares[1] == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert found.shares[2].tolist() == [0, 0, 0, 0]


def test_wawa_by_hand():
    # Items 0 and 1: Ana and Ben say a, Cem b. Item 2: Ana a, Cem b, a tie: half a point each.
    votes = votes_from([0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0, 2], [0, 0, 1, 0, 0, 1, 0, 1])
    found = wawa(votes)
    ana, ben, cem = 2.5 / 3, 1.0, 0.5 / 3
    assert found.weights == pytest.approx([ana, ben, cem])
    assert found.shares[2, 0] == pytest.approx(ana / (ana + cem))
    assert found.winner.tolist() == [0, 0, 0]


def test_majority_on_rte_is_right_as_often_as_published():
    votes, gold = real_crowd("rte")
    right = (majority(votes).winner == gold).mean() + (majority(votes).winner == -1).mean() / 2
    assert right == pytest.approx(0.896875)


def test_winners_are_alone_at_the_top():
    rows = [[0.5, 0.5, 0, 0], [0.5 + 1e-12, 0.5 - 1e-12, 0, 0], [0.6, 0.4, 0, 0], [0, 0, 0, 0]]
    assert winners(rows).tolist() == [-1, -1, 0, -1]
    assert winners(np.zeros((0, 4))).tolist() == []


# One Bayes step, as the web application takes it for one comparison.


def wide(matrix: list[list[float]]) -> np.ndarray:
    """A (2, 2) confusion matrix among four choices, of which two are offered."""
    made = np.eye(4)
    made[:2, :2] = matrix
    return made


ANA = wide([[0.9, 0.1], [0.2, 0.8]])
BEN = wide([[0.6, 0.4], [0.4, 0.6]])
NEW = wide([[0.7, 0.3], [0.3, 0.7]])
EVEN = [0.5, 0.5, 0, 0]


def test_two_votes_by_hand():
    votes = votes_from([0, 0], [0, 1], [0, 1])
    found = posteriors_of(votes, [0.6, 0.4, 0, 0], [ANA, BEN], NEW)
    a, b = 0.6 * 0.9 * 0.4, 0.4 * 0.2 * 0.6
    assert found[0] == pytest.approx([a / (a + b), b / (a + b), 0, 0])


def test_one_coin_log_odds_add_up():
    q = [0.9, 0.8, 0.6]
    people = [wide([[x, 1 - x], [1 - x, x]]) for x in q]
    found = posteriors_of(votes_from([0, 0, 0], [0, 1, 2], [0, 1, 0]), EVEN, people, NEW)
    odds = np.log(0.9 / 0.1) - np.log(0.8 / 0.2) + np.log(0.6 / 0.4)
    assert found[0, 0] == pytest.approx(1 / (1 + np.exp(-odds)))


def test_somebody_never_seen_votes_like_the_default():
    votes = votes_from([0], [7], [0])
    assert posteriors_of(votes, EVEN, [ANA], NEW)[0, 0] == pytest.approx(0.7)
    assert posteriors_of(votes, EVEN, np.zeros((0, 4, 4)), NEW)[0, 0] == pytest.approx(0.7)


def test_an_item_without_votes_gets_the_priors():
    votes = votes_from([0], [0], [0], n_items=2)
    assert posteriors_of(votes, [0.3, 0.7, 0, 0], [ANA], NEW)[1] == pytest.approx([0.3, 0.7, 0, 0])


def test_a_choice_the_model_never_saw_says_nothing():
    votes = votes_from([0, 0], [0, 1], [0, 3])
    found = posteriors_of(votes, EVEN, [ANA, BEN], NEW)
    assert found[0] == pytest.approx([9 / 11, 2 / 11, 0, 0])


def test_votes_that_are_impossible_together_leave_the_priors():
    sure = wide([[1, 0], [0, 1]])
    votes = votes_from([0, 0], [0, 1], [0, 1])
    assert posteriors_of(votes, EVEN, [sure, sure], NEW)[0] == pytest.approx(EVEN)


def test_two_thousand_votes_on_one_item_neither_underflow_nor_warn():
    votes = votes_from(np.zeros(2000, int), np.zeros(2000, int), np.arange(2000) % 3 % 2)
    found = posteriors_of(votes, EVEN, [BEN], NEW)
    assert found.sum() == pytest.approx(1)
    assert found[0, 0] == pytest.approx(1)


def test_one_more_vote_is_a_factor_per_truth():
    before = posteriors_of(votes_from([0], [0], [0]), EVEN, [ANA, BEN], NEW)
    after = posteriors_of(votes_from([0, 0], [0, 1], [0, 1]), EVEN, [ANA, BEN], NEW)
    product = before[0] * BEN[:, 1]
    assert after[0] == pytest.approx(product / product.sum())


def test_share_right_counts_a_tie_by_its_size():
    scores = [[0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0.2, 0.8, 0, 0], [1, 0, 0, 0]]
    right = share_right(scores, [0, 2, 0, -1])
    assert right[:3] == pytest.approx([1 / 2, 1 / 3, 0])
    assert np.isnan(right[3])
