"""Agreement coefficients against published figures, hand computation and plain counting."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from measures.agreement import (
    clustering,
    cohen_kappa,
    count_matrix,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    mean_cohen_kappa,
    pair_counts,
    pair_votes,
    percent_agreement,
)
from measures.agreement.clusters import batches
from measures.agreement.reading import distinct_rows
from measures.estimate import Statistic
from measures.voting import (
    CHOICES,
    Outcome,
    Rule,
    chance_keep_rate,
    decide,
    decide_many,
    posterior_keep_rate,
    two_way_posterior,
)
from tests.measures.crowds import counts_of, crowd, pandalm_counts, pandalm_votes
from tests.measures.test_voting import RULES

ALL = (percent_agreement, krippendorff_alpha, fleiss_kappa, gwet_ac1)

# Four raters, twelve subjects, missing votes, one subject with a single vote: the data set
# cac.raw4raters of the R package irrCAC, taken from Krippendorff's textbook example.
FOUR_RATERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")

# Two abstractors, 100 patients: cont3x3abstractors of irrCAC.
ABSTRACTORS = np.array([[13, 0, 0], [0, 20, 7], [0, 4, 56]])


def four_raters() -> np.ndarray:
    cast = [
        (subject, int(mark) - 1)
        for votes in FOUR_RATERS
        for subject, mark in enumerate(votes)
        if mark != "."
    ]
    subjects, marks = zip(*cast, strict=True)
    return count_matrix(subjects, marks, n_items=12, n_categories=5)


def abstractors_as_counts() -> np.ndarray:
    rows, one_hot = [], np.eye(3, dtype=int)
    for first, second in np.ndindex(3, 3):
        rows += [one_hot[first] + one_hot[second]] * ABSTRACTORS[first, second]
    return np.array(rows)


@pytest.mark.parametrize(
    ("statistic", "published"),
    [
        (percent_agreement, 0.8181818),
        (krippendorff_alpha, 0.743421),
        (fleiss_kappa, 0.7611693),
        (gwet_ac1, 0.775444),
    ],
)
def test_the_textbook_example_with_missing_votes_gives_its_published_figures(statistic, published):
    assert statistic(four_raters()).value == pytest.approx(published, abs=1e-6)


@pytest.mark.parametrize(
    ("statistic", "published"),
    [(percent_agreement, 0.89), (krippendorff_alpha, 0.7972585), (gwet_ac1, 0.8493305)],
)
def test_two_abstractors_give_their_published_figures(statistic, published):
    assert statistic(abstractors_as_counts()).value == pytest.approx(published, abs=1e-7)


def test_cohen_kappa_gives_the_published_figure_and_a_fitting_interval():
    estimate = cohen_kappa(ABSTRACTORS)
    assert estimate.value == pytest.approx(0.7964094, abs=1e-7)
    # Published analytic interval: 0.680 to 0.913.
    assert estimate.low == pytest.approx(0.680, abs=0.02)
    assert estimate.high == pytest.approx(0.913, abs=0.02)
    assert (estimate.n_items, estimate.n_votes) == (100, 200)


@pytest.mark.parametrize(
    ("counts", "percent", "kappa", "alpha"),
    [
        (counts_of("ukp"), 0.5639, 0.3202, 0.3203),
        (pandalm_counts(), 0.9199, 0.8642, 0.8642),
        (counts_of("rte"), 0.6287, 0.2414, 0.2415),
    ],
    ids=["argument pairs", "pandalm", "entailment"],
)
def test_real_crowds_give_the_figures_measured_on_them(counts, percent, kappa, alpha):
    assert percent_agreement(counts).value == pytest.approx(percent, abs=5e-5)
    assert fleiss_kappa(counts).value == pytest.approx(kappa, abs=5e-5)
    assert krippendorff_alpha(counts).value == pytest.approx(alpha, abs=5e-5)


def test_pandalm_annotators_agree_in_pairs_as_its_authors_published():
    votes = pandalm_votes()
    kappas = []
    for first, second in itertools.combinations(range(3), 2):
        table = np.zeros((4, 4), dtype=int)
        np.add.at(table, (votes[:, first], votes[:, second]), 1)
        kappas.append(cohen_kappa(table, replicates=0).value)
    assert sorted(round(kappa, 2) for kappa in kappas) == [0.85, 0.86, 0.88]


def vote_lists(table: np.ndarray) -> list[list[int]]:
    return [
        [category for category, n in enumerate(row) for _ in range(int(n))]
        for row in table
        if row.sum() >= 2
    ]


def alpha_by_counting(table: np.ndarray) -> float | None:
    """Krippendorff's definition, pair of votes by pair of votes."""
    items = vote_lists(table)
    n = sum(map(len, items))
    observed = sum(
        sum(one != other for one, other in itertools.permutations(votes, 2)) / (len(votes) - 1)
        for votes in items
    )
    everything = [vote for votes in items for vote in votes]
    expected = sum(one != other for one, other in itertools.permutations(everything, 2))
    if not expected:
        return None
    return 1 - (observed / n) / (expected / (n * (n - 1)))


TABLES = arrays(np.int64, st.tuples(st.integers(1, 7), st.just(3)), elements=st.integers(0, 3))


@given(TABLES)
def test_alpha_is_what_counting_pairs_of_votes_gives(table):
    expected = alpha_by_counting(table)
    estimate = krippendorff_alpha(table, replicates=0)
    if expected is None:
        assert estimate.value is None
        assert estimate.undefined
    else:
        assert estimate.value == pytest.approx(expected)


@given(TABLES)
def test_percent_agreement_is_the_mean_over_items_of_agreeing_pairs(table):
    shares = [
        np.mean([one == other for one, other in itertools.combinations(votes, 2)])
        for votes in vote_lists(table)
    ]
    estimate = percent_agreement(table, replicates=0)
    if not shares:
        assert estimate.undefined == "no_two_votes"
    else:
        assert estimate.value == pytest.approx(np.mean(shares))
        assert estimate.n_items == len(shares)
        assert estimate.n_votes == sum(map(len, vote_lists(table)))


@given(TABLES, st.permutations(range(3)), st.randoms())
def test_neither_the_order_of_items_nor_the_names_of_choices_matter(table, columns, random):
    shuffled = table[random.sample(range(len(table)), len(table))][:, columns]
    for statistic in ALL:
        before, after = statistic(table, replicates=0), statistic(shuffled, replicates=0)
        assert before.undefined == after.undefined
        if before.value is not None:
            assert after.value == pytest.approx(before.value)


def test_full_agreement_on_several_choices_is_one_for_every_coefficient():
    table = np.array([[4, 0, 0], [0, 4, 0], [0, 0, 4]] * 5)
    for statistic in ALL:
        assert statistic(table).value == pytest.approx(1)


def test_random_votes_have_an_alpha_of_nothing_and_healthy_ones_of_about_two_a_minus_one():
    noise = krippendorff_alpha(crowd(1, 4000, 5, 0.5))
    assert noise.low <= 0 <= noise.high
    votes = crowd(2, 4000, 5, 0.75)
    agreement = 0.75**2 + 0.25**2
    assert percent_agreement(votes).value == pytest.approx(agreement, abs=0.01)
    assert krippendorff_alpha(votes).value == pytest.approx(2 * agreement - 1, abs=0.02)


@pytest.mark.parametrize("statistic", ALL)
def test_a_project_without_two_votes_anywhere_is_undefined_with_the_reason(statistic):
    for table in (np.zeros((0, 4), int), np.zeros((5, 4), int), np.eye(4, dtype=int)):
        estimate = statistic(table)
        assert estimate.value is None
        assert estimate.undefined == "no_two_votes"
        assert (estimate.low, estimate.high, estimate.n_items, estimate.n_votes) == (
            None,
            None,
            0,
            0,
        )


@pytest.mark.parametrize("statistic", [krippendorff_alpha, fleiss_kappa])
def test_votes_all_for_one_choice_leave_chance_correction_undefined(statistic):
    estimate = statistic([[3, 0], [5, 0]] * 20)
    assert estimate.value is None
    assert estimate.undefined == "votes_alike"
    assert estimate.n_items == 40


def test_ac1_stays_high_where_kappa_collapses_on_a_rare_choice():
    lopsided = [[5, 0]] * 96 + [[4, 1]] * 4
    assert gwet_ac1(lopsided).value > 0.95
    assert fleiss_kappa(lopsided).value < 0.1


def test_ac1_of_a_single_offered_choice_is_undefined():
    assert gwet_ac1([[3], [2]]).undefined == "one_category"


def test_cohen_kappa_says_why_it_is_undefined():
    assert cohen_kappa(np.zeros((2, 2), int)).undefined == "none_in_common"
    assert cohen_kappa([[9, 0], [0, 0]]).undefined == "both_alike"
    with pytest.raises(ValueError, match="square"):
        cohen_kappa([[1, 2, 3], [4, 5, 6]])


def test_each_estimate_names_its_statistic():
    names = [statistic(four_raters()).statistic for statistic in ALL]
    assert names == [
        Statistic.PERCENT_AGREEMENT,
        Statistic.KRIPPENDORFF_ALPHA,
        Statistic.FLEISS_KAPPA,
        Statistic.GWET_AC1,
    ]


def test_intervals_repeat_with_the_seed_and_move_with_it():
    votes = crowd(3, 200, 5, 0.7)
    same = krippendorff_alpha(votes, seed=4)
    assert same == krippendorff_alpha(votes, seed=4)
    assert same.low != krippendorff_alpha(votes, seed=5).low


def test_ninety_five_percent_intervals_contain_the_truth_about_as_often():
    """True alpha of an even two-way crowd with q = 0.75: 2a − 1 = 0.25."""
    covered = 0
    for seed in range(200):
        estimate = krippendorff_alpha(crowd(seed, 150, 4, 0.75), seed=seed, replicates=1000)
        covered += estimate.low <= 0.25 <= estimate.high
    # Binomial(200, 0.95): outside 180..198 less than once in 400 runs; seeds are fixed.
    assert 180 <= covered <= 198


def test_items_that_hang_together_widen_the_interval_when_named_as_groups():
    votes = np.repeat(crowd(6, 60, 5, 0.7), 20, axis=0)  # every item twenty times
    alone = krippendorff_alpha(votes)
    together = krippendorff_alpha(votes, groups=np.repeat(np.arange(60), 20))
    assert together.value == pytest.approx(alone.value)
    assert together.high - together.low > 3 * (alone.high - alone.low)


def test_too_few_items_or_groups_give_a_value_without_an_interval():
    few = percent_agreement([[3, 1]] * 5 + [[2, 2]] * 4)
    assert few.value is not None
    assert few.low is None
    assert few.no_interval == "too_few unit=comparisons n=9 least=10"
    grouped = percent_agreement(crowd(1, 50, 5, 0.7), groups=["cats", "dogs"] * 25)
    assert grouped.no_interval == "too_few unit=groups n=2 least=10"


def test_comparisons_that_are_all_alike_give_no_interval_of_zero_width():
    estimate = percent_agreement([[3, 0], [0, 3]] * 20)
    assert estimate.value == 1
    assert estimate.low is None
    assert "alike" in estimate.no_interval


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="per item"):
        percent_agreement([[2, 1]] * 4, groups=[1, 2, 3])


@pytest.mark.parametrize("bad", [[1, 2], [[1, -1]], [[0.5, 1.5]]])
def test_a_table_that_is_not_counts_is_refused(bad):
    with pytest.raises(ValueError, match="counts must"):
        krippendorff_alpha(bad)


def test_votes_become_counts_where_they_belong():
    counts = count_matrix([0, 2, 2, 2], [1, 0, 0, 2], n_items=4, n_categories=3)
    assert counts.tolist() == [[0, 1, 0], [0, 0, 0], [2, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("items", "categories", "complaint"),
    [
        ([0, 4], [0, 0], "items must lie between 0 and 3"),
        ([0, -1], [0, 0], "items"),
        ([0, 1], [0, 3], "categories must lie between 0 and 2"),
        ([0, 1], [0], "equally long"),
    ],
)
def test_votes_outside_the_table_are_refused_by_name(items, categories, complaint):
    with pytest.raises(ValueError, match=complaint):
        count_matrix(items, categories, n_items=4, n_categories=3)


@settings(max_examples=60)
@given(
    arrays(
        np.int64,
        st.tuples(st.integers(0, 30), st.integers(1, 4)),
        elements=st.sampled_from([0, 1, 2, 5]) | st.just(10**9),
    )
)
def test_distinct_rows_put_together_again_are_the_table(table):
    rows, times = distinct_rows(table)
    assert len({tuple(row) for row in rows}) == len(rows)
    again = sorted(map(tuple, np.repeat(rows, times, axis=0).tolist()))
    assert again == sorted(map(tuple, table.tolist()))


def test_no_statistic_ever_leaks_a_nan():
    rng = np.random.default_rng(0)
    for _ in range(300):
        table = rng.integers(0, 3, size=(rng.integers(0, 14), rng.integers(1, 5)))
        for statistic in ALL:
            estimate = statistic(table, replicates=50)
            assert (estimate.value is None) == (estimate.undefined is not None)
            if estimate.value is not None:
                assert math.isfinite(estimate.value)
                assert (estimate.low is None) == (estimate.no_interval is not None)


# What coin-flippers get past a rule.


def test_three_of_five_and_sixty_percent_keeps_every_coin_flip():
    assert chance_keep_rate(Rule(), 5) == 1.0


def test_four_of_five_keeps_twelve_of_the_thirty_two_ways_to_flip_five_coins():
    assert chance_keep_rate(Rule(least_agreeing=4, least_share=0.8), 5) == 12 / 32


def test_a_posterior_of_ninety_percent_passes_only_four_one_and_five_nil():
    assert two_way_posterior(4, 1, 0.73) >= 0.9 > two_way_posterior(3, 2, 0.73)
    assert posterior_keep_rate(0.73, 0.9, 5) == 0.375


def test_the_posterior_is_bayes_rule_by_hand():
    # Two votes for A, one for B at q = 0.8: 0.8·0.8·0.2 against 0.2·0.2·0.8.
    assert two_way_posterior(2, 1, 0.8) == pytest.approx(0.128 / (0.128 + 0.032))
    assert two_way_posterior(3, 3, 0.8) == 0.5
    assert two_way_posterior(100_000, 0, 0.99) == 1.0


@settings(max_examples=40)
@given(RULES, st.integers(1, 5), st.integers(1, 4))
def test_the_rate_is_the_share_of_all_vote_sequences_that_are_accepted(rule, n_votes, n_choices):
    sequences = list(itertools.product(CHOICES[:n_choices], repeat=n_votes))
    accepted = sum(
        decide(sequence, rule, votes_possible=n_votes).outcome is Outcome.ACCEPTED
        for sequence in sequences
    )
    assert chance_keep_rate(rule, n_votes, n_choices) == pytest.approx(accepted / len(sequences))


@settings(max_examples=40)
@given(RULES, st.integers(1, 5), st.integers(1, 3))
def test_stopping_early_keeps_a_sequence_when_any_of_its_beginnings_is_accepted(
    rule, n_votes, n_choices
):
    sequences = list(itertools.product(CHOICES[:n_choices], repeat=n_votes))
    accepted = sum(
        any(decide(sequence[:k], rule).outcome is Outcome.ACCEPTED for k in range(1, n_votes + 1))
        for sequence in sequences
    )
    rate = chance_keep_rate(rule, n_votes, n_choices, stop_when_met=True)
    assert rate == pytest.approx(accepted / len(sequences))
    assert rate >= chance_keep_rate(rule, n_votes, n_choices) - 1e-12


def test_an_uneven_crowd_matches_a_simulation():
    chances, rule = [0.4, 0.4, 0.15, 0.05], Rule(least_agreeing=4, least_share=0.6, max_votes=7)
    drawn = np.random.default_rng(7).multinomial(7, chances, size=200_000)
    simulated = decide_many(drawn, rule).tally()[Outcome.ACCEPTED] / len(drawn)
    exact = chance_keep_rate(rule, 7, probabilities=chances)
    assert exact == pytest.approx(simulated, abs=4 * (0.25 / len(drawn)) ** 0.5)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: chance_keep_rate(Rule(), 0), "n_votes"),
        (lambda: chance_keep_rate(Rule(), 51), "n_votes"),
        (lambda: chance_keep_rate(Rule(), 5, 5), "n_choices"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[0.5, 0.4]), "sum to 1"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[1.5, -0.5]), "sum to 1"),
        (lambda: chance_keep_rate(Rule(), 5, probabilities=[0.2] * 5), "at most 4"),
        (lambda: two_way_posterior(1, 0, 0.5), "accuracy"),
        (lambda: two_way_posterior(-1, 0, 0.7), "at least 0"),
        (lambda: posterior_keep_rate(0.7, 0.2, 5), "least_posterior"),
        (lambda: posterior_keep_rate(0.7, 0.9, 0), "n_votes"),
    ],
)
def test_a_crowd_that_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# The mean kappa over pairs of people, and intervals by group.


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
    assert found.estimate.undefined == "few_in_common least=10"
    assert mean_kappa(np.full((30, 2), 1)).estimate.undefined == "people_alike"
    nobody = mean_kappa(np.full((3, 2), -1))
    assert nobody.n_pairs == 0


def test_groups_are_used_from_ten_on():
    assert clustering(np.arange(50)).groups is None  # each stands alone
    assert clustering(np.arange(50)).reason is None
    few = clustering(np.arange(50) % 9)
    assert few.by == "comparisons"
    assert few.reason == "few_groups n=9 least=10"
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
