"""A slice is named where it is worse, and hardly ever where it is not."""

import json
import pkgutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, kendalltau
from scipy.stats.contingency import odds_ratio

import measures
from apps.agreement.reports.reading import position_said
from measures.agreement.slices import holm, item_agreement, slice_gaps
from measures.groups import agreement_within, silent_groups, spread_of
from measures.position import binomial_test, position_bias
from measures.rounds import before_after, pair_agreement


def crowd(rng, n: int, agreement: np.ndarray | float) -> np.ndarray:
    """(n,) 1 where two votes agree."""
    return (rng.random(n) < agreement).astype(float)


def test_the_share_of_agreeing_pairs_of_an_item_is_that_counted_by_hand():
    found = item_agreement([[2, 0], [2, 1], [1, 1], [1, 0], [3, 2]])
    assert found[:3] == pytest.approx([1, 1 / 3, 0])
    assert np.isnan(found[3])
    assert found[4] == pytest.approx((3 + 1) / 10)


def test_the_gap_is_the_difference_of_the_two_means():
    scores = np.r_[np.tile([1.0, 0.0], 50), np.tile([1.0, 1.0, 1.0, 0.0], 25)]
    gap = slice_gaps(scores, np.repeat([0, 1], 100), n_slices=2)[0]
    assert gap.value == pytest.approx(0.5 - 0.75)
    deviation = np.sqrt(0.25 / 100 + 0.1875 / 100)
    assert gap.high - gap.low == pytest.approx(2 * 1.98 * deviation, rel=0.02)


def test_small_slices_are_not_compared():
    gaps = slice_gaps(np.ones(100), np.r_[np.zeros(20), np.ones(80)], n_slices=3)
    assert gaps[0].untested == "small_slice"
    assert gaps[1].untested == "small_rest"
    assert gaps[2].n == 0


def test_holm_is_that_of_the_textbook():
    gaps = slice_gaps(np.tile([1.0, 0.0], 100), np.repeat(np.arange(4), 50), n_slices=4)
    worked = [replace(g, p=p) for g, p in zip(gaps, [0.01, 0.04, 0.03, 0.005], strict=True)]
    assert [g.adjusted for g in holm(worked)] == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_planted_bad_slice_is_named_and_no_other():
    rng = np.random.default_rng(0)
    for _ in range(20):
        place = np.repeat(np.arange(12), 200)
        scores = crowd(rng, 2400, np.where(place == 7, 0.55, 0.75))
        named = [
            k for k, g in enumerate(holm(slice_gaps(scores, place, n_slices=12))) if g.is_worse
        ]
        assert named == [7]


def false_alarms(rng, draw, runs: int = 250) -> int:
    alarms = 0
    for _ in range(runs):
        gaps = []
        for place, scores, groups, *answers in draw(rng):
            n = int(place.max()) + 1
            both = answers[0] if answers else None
            gaps += slice_gaps(scores, place, n_slices=n, groups=groups, answers=both)
        alarms += any(gap.is_worse for gap in holm(gaps))
    return alarms


def test_slices_that_are_alike_are_named_in_at_most_one_project_of_twenty():
    def draw(rng):
        scores = crowd(rng, 900, 0.7)
        return [(rng.integers(0, k, 900), scores, None) for k in (4, 8, 15)]

    assert false_alarms(np.random.default_rng(1), draw) <= 250 * 0.05 + 7  # + 2 standard errors


def test_groups_that_differ_raise_no_false_alarm_between_slices_that_cross_them():
    def draw(rng):
        group = rng.integers(0, 40, 900)
        own = rng.beta(4, 2, 40)
        scores = crowd(rng, 900, own[group])
        by_group = rng.integers(0, 3, 40)[group]  # slices made of whole groups
        return [(rng.integers(0, 6, 900), scores, group), (by_group, scores, group)]

    assert false_alarms(np.random.default_rng(2), draw) <= 250 * 0.05 + 7


def test_a_difference_too_small_to_act_on_is_not_named():
    rng = np.random.default_rng(3)
    place = np.repeat([0, 1], 200_000)
    gaps = holm(slice_gaps(crowd(rng, 400_000, np.where(place, 0.72, 0.70)), place, n_slices=2))
    assert gaps[0].adjusted < 1e-6
    assert not gaps[0].is_worse


def test_answers_that_recur_raise_no_false_alarm_between_slices_made_of_them():
    def draw(rng):
        first, second = rng.integers(0, 40, 500), 40 + rng.integers(0, 40, 500)
        ease = rng.normal(0, 0.15, 80)
        scores = crowd(rng, 500, np.clip(0.7 + ease[first] + ease[second], 0, 1))
        by_answer = rng.integers(0, 4, 80)[first]
        return [(by_answer, scores, np.zeros(500), (first, second))]

    assert false_alarms(np.random.default_rng(6), draw) <= 250 * 0.05 + 7


# Groups of answers: by hand, against scipy's tau, and with planted faults.


def test_spread_within_and_between_groups_by_hand() -> None:
    spread = spread_of([[1.0, 3.0], [5.0, 5.0], [0.0, 4.0]])
    assert spread.within == pytest.approx((2**0.5 + 0.0 + 8**0.5) / 3)
    assert spread.between == pytest.approx(3**0.5)  # means 2, 5, 2 around 3: (1 + 4 + 1) / 2
    assert (spread.silent, spread.groups) == (pytest.approx(1 / 3), 3)


def test_rewards_that_differ_by_rounding_only_are_alike() -> None:
    big = 1000.0
    assert spread_of([[big, np.nextafter(np.float32(big), np.inf, dtype=np.float32)]]).silent == 1.0
    assert spread_of([[0.0, 0.01]]).silent == 0.0


def test_answers_that_do_not_count_are_left_out_and_groups_of_one_with_them() -> None:
    rewards = [[1.0, 9.0, 1.0], [2.0, np.nan, np.nan]]
    counts = [[True, False, True], [True, False, False]]
    spread = spread_of(rewards, counts)
    assert (spread.silent, spread.groups, spread.between) == (1.0, 1, None)
    assert spread_of([[1.0, 2.0]], [[False, False]]).within is None


def test_silent_groups_are_those_alike_but_for_rounding_or_with_one_answer_left() -> None:
    third = np.float32(0.1) * np.ones(4)
    noisy = third + np.array([0, 1e-9, 0, -1e-9])
    rewards = [noisy, [0.0, 0.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]]
    counts = [[True] * 4, [True] * 4, [True, False, False, False]]
    assert silent_groups(rewards, counts).tolist() == [True, False, True]


def test_without_ties_agreement_is_kendalls_tau_on_the_scale_of_shares() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(1, 9)), rng.normal(size=(1, 9))
    found = agreement_within(one, two)
    assert found.value == pytest.approx((1 + kendalltau(one[0], two[0]).statistic) / 2)
    assert found.pairs == 36


def test_a_source_that_knows_hard_prompts_but_not_good_answers_agrees_by_chance_only() -> None:
    quality = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]])
    difficulty = np.array([[0.0] * 3, [10.0] * 3])
    assert agreement_within(quality, difficulty).value == 0.5
    assert agreement_within(quality, -quality).value == 0.0
    assert agreement_within(quality, quality**3).value == 1.0


def test_pairs_that_the_reference_ties_say_nothing() -> None:
    passes = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    reward = np.array([[3.0, 2.0, 9.0], [1.0, 2.0, 3.0]])
    found = agreement_within(passes, reward)
    assert (found.value, found.pairs, found.groups) == (0.5, 2, 1)
    assert agreement_within([[1.0, 1.0]], [[0.0, 5.0]]).value is None


def test_what_is_no_number_or_no_group_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        spread_of([[1.0, np.nan]])
    with pytest.raises(ValueError, match="dimensions"):
        spread_of([1.0, 2.0])
    with pytest.raises(ValueError, match="one shape"):
        agreement_within([[1.0, 2.0]], [[1.0, 2.0, 3.0]])


# `measures` must run where neither Django nor torch is installed.


MODULES = [found.name for found in pkgutil.walk_packages(measures.__path__, "measures.")]
FOREIGN = {"django", "torch", "sklearn", "transformers", "apps", "workers", "config"}


def loaded_after_importing(*modules: str) -> set[str]:
    """The top-level modules of a fresh interpreter after these imports."""
    script = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *modules],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(ran.stdout))


def test_every_measures_module_imports_without_django_torch_or_sklearn():
    assert "measures.voting.rule" in MODULES
    assert not loaded_after_importing(*MODULES) & FOREIGN


def test_deciding_in_a_votes_transaction_does_not_load_scipy():
    assert "scipy" not in loaded_after_importing("measures.voting")


# Before and after: a real gain is found, and a lucky second look is not taken for one.


def crowd_twice(rng: np.random.Generator, p: np.ndarray, votes: int = 5) -> np.ndarray:
    """(n, 2) votes for A and B, where each vote is for A with chance p."""
    a = rng.binomial(votes, p)
    return np.column_stack([a, votes - a])


def disputed(rng: np.random.Generator, n: int = 1_500) -> tuple[np.ndarray, ...]:
    """Which comparisons of a project were contested, their true chances, and all first votes."""
    p = rng.beta(0.8, 0.8, n)
    first = crowd_twice(rng, p)
    return first.min(axis=1) == 2, p, first  # 3 : 2


def test_agreement_by_hand() -> None:
    assert pair_agreement([[3, 2], [5, 0], [1, 0]])[:2] == pytest.approx([0.4, 1.0])
    assert np.isnan(pair_agreement([[1, 0]])[0])


def test_a_second_look_without_a_change_shows_a_rise_that_is_called_expected() -> None:
    rng = np.random.default_rng(11)
    hits, rises = 0, []
    for _ in range(60):
        sent, p, first = disputed(rng)
        found = before_after(first[sent], crowd_twice(rng, p[sent]), project=first)
        assert found.difference.low > 0.05  # the rise that would be believed
        rises.append(found.after.value - found.expected)
        hits += found.beyond.low <= 0 <= found.beyond.high
    assert np.mean(rises) == pytest.approx(0.0, abs=0.02)
    assert hits >= 50


def asked_on(rng: np.random.Generator, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the first three votes, all votes), where up to five are asked for while none has three."""
    first = crowd_twice(rng, p, 3)
    every = first.copy()
    for _ in range(2):
        wanting = every.max(axis=1) < 3
        every[wanting] += crowd_twice(rng, p[wanting], 1)
    return first, every


def test_further_votes_where_the_first_differ_do_not_pass_for_a_rise() -> None:
    rng = np.random.default_rng(13)
    coins = np.full(20_000, 0.5)
    first, every = asked_on(rng, coins)
    assert pair_agreement(every).mean() == pytest.approx(0.5875, abs=0.01)  # 9 points too high
    assert pair_agreement(first).mean() == pytest.approx(0.5, abs=0.01)
    hits, rises = 0, []
    for _ in range(60):
        p = rng.beta(0.8, 0.8, 2_000)
        first, every = asked_on(rng, p)
        sent = every.min(axis=1) == 2  # contested or accepted by three to two
        again, _ = asked_on(rng, p[sent])
        found = before_after(first[sent], again, seen=every[sent], project=first)
        rises.append(found.after.value - found.expected)
        hits += found.beyond.low <= 0 <= found.beyond.high
    assert np.mean(rises) == pytest.approx(0.0, abs=0.015)
    assert hits >= 52


def test_a_guideline_that_helps_is_seen_beyond_what_chance_gives() -> None:
    rng = np.random.default_rng(12)
    sent, p, first = disputed(rng)
    clearer = np.where(p[sent] > 0.5, 0.95, 0.05)
    found = before_after(first[sent], crowd_twice(rng, clearer), project=first)
    assert found.after.value == pytest.approx(1 - 2 * 0.95 * 0.05, abs=0.02)
    assert found.beyond.low > 0.15
    assert found.n == sent.sum()


def test_only_comparisons_with_two_votes_in_both_rounds_are_compared() -> None:
    found = before_after([[1, 1], [2, 0], [1, 1]], [[2, 0], [1, 0], [0, 0]])
    assert (found.n, found.before.value, found.after.value) == (1, 0.0, 1.0)
    assert found.expected is None
    assert found.difference.no_interval.startswith("too_few")


def test_before_any_new_votes_there_is_nothing_to_compare() -> None:
    found = before_after([[1, 1]], [[0, 0]], project=[[1, 1], [2, 0]])
    assert found.n == 0
    assert found.after.undefined
    assert found.expected is None


# The pull of a side: planted ones are found, honest crowds show none, and its limits are said.


HOW_MANY_SEEDS = 60


def crowd_of_sides(seed, *, b=0.0, pairs=600, people=12, votes=4, merit=1.5, spread=0.0, ties=0.0):
    """(pair, annotator, chose_left, a_left) by the model; each of `votes` people judges a pair."""
    rng = np.random.default_rng(seed)
    gain = rng.normal(0, merit, pairs)  # of the first answer over the second
    pull = b + rng.normal(0, spread, people)
    pair = np.repeat(np.arange(pairs), votes)
    who = np.argsort(rng.random((pairs, people)), axis=1)[:, :votes].ravel()
    a_left = rng.random(len(pair)) < 0.5
    logit = pull[who] + np.where(a_left, 1, -1) * gain[pair]
    left = (rng.random(len(pair)) < 1 / (1 + np.exp(-logit))).astype(int)
    left[rng.random(len(pair)) < ties] = -1
    return pair, who, left, a_left


@pytest.mark.parametrize("b", [-0.8, 0.0, 0.4, 1.2])
def test_a_planted_pull_lies_in_the_interval_as_often_as_it_should(b):
    found = [position_bias(*crowd_of_sides(seed, b=b)) for seed in range(HOW_MANY_SEEDS)]
    inside = sum(x.logit_low <= b <= x.logit_high for x in found)
    assert inside >= 53  # 57 expected; fewer than 53 of 60 happen once in 50 by chance
    assert np.mean([x.logit for x in found]) == pytest.approx(b, abs=0.05)


def test_the_left_rate_alone_understates_the_pull():
    found = position_bias(*crowd_of_sides(3, b=1.0, pairs=4000, merit=2.5))
    assert found.logit_low <= 1.0 <= found.logit_high
    assert found.left_rate.high < 0.7 < found.value  # the chance between equals is 0.73


def test_clear_pairs_and_few_votes_do_not_bend_the_estimate():
    # Fitting a merit to each pair would double b here: two votes a pair, mostly one-sided.
    found = position_bias(*crowd_of_sides(5, b=0.5, pairs=6000, votes=2, merit=2.0))
    assert found.logit_low <= 0.5 <= found.logit_high
    assert found.logit_high - found.logit_low < 0.4


def test_no_pull_is_alarming_about_one_time_in_twenty():
    found = [position_bias(*crowd_of_sides(seed, pairs=150)) for seed in range(200)]
    assert sum(x.p < 0.05 for x in found) <= 18  # 10 expected
    assert sum(x.left_p < 0.05 for x in found) <= 18
    assert sum(not x.low <= 0.5 <= x.high for x in found) <= 18


def test_people_who_differ_give_their_average():
    found = [position_bias(*crowd_of_sides(s, b=0.4, spread=0.5, people=60)) for s in range(20)]
    assert np.mean([x.logit for x in found]) == pytest.approx(0.4, abs=0.1)


def test_the_odds_ratio_is_that_of_a_table_counted_by_hand():
    # One pair. First answer left: chosen 6 of 8 times; right: chosen 3 of 9 times.
    a_left = [True] * 8 + [False] * 9
    left = [1] * 6 + [0] * 2 + [0] * 3 + [1] * 6
    found = position_bias([7] * 17, range(17), left, a_left)
    assert found.logit == pytest.approx(np.log((6 * 6) / (2 * 3)) / 2)
    # Beside the conditional estimate of scipy, which differs a little for one small table.
    assert np.exp(2 * found.logit) == pytest.approx(
        odds_ratio([[6, 2], [3, 6]]).statistic, rel=0.15
    )
    assert found.low is None
    assert found.no_interval.startswith("few_pairs_tell")


def test_ties_and_unknown_sides_are_left_out_and_counted():
    pair, who, left, a_left = crowd_of_sides(2, ties=0.3)
    found = position_bias(pair, who, left, a_left)
    assert found.n_ties == (left == -1).sum() > 500
    kept = left >= 0
    again = position_bias(pair[kept], who[kept], left[kept], a_left[kept])
    assert (again.logit, again.n) == (found.logit, found.n)


def test_a_crowd_that_always_clicks_left_is_named_with_a_finite_interval():
    pair, who, left, a_left = crowd_of_sides(4, pairs=100)
    found = position_bias(pair, who, np.ones_like(left), a_left)
    assert found.left_rate.value == 1
    assert found.low > 0.7
    assert np.isfinite([found.logit_low, found.logit_high]).all()
    assert "to the left" in position_said(found)


def test_mirroring_every_screen_mirrors_the_pull():
    pair, who, left, a_left = crowd_of_sides(8, b=0.7)
    one = position_bias(pair, who, left, a_left)
    other = position_bias(pair, who, 1 - left, ~a_left)
    assert other.logit == pytest.approx(-one.logit)
    assert other.p == pytest.approx(one.p)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([], [], [], []), "no_choice_of_side"),
        (([1, 2], [1, 1], [-1, -1], [True, False]), "no_choice_of_side"),
        (([1, 2, 3], [1, 1, 1], [1, 0, 1], None), "sides_not_kept"),
        (([1, 2, 3], [1, 1, 1], [1, 0, 1], [True, True, False]), "one_way_round"),
        (([1, 1], [1, 2], [1, 0], [True, False]), "no_side_twice"),
    ],
)
def test_what_cannot_be_known_says_why(arguments, reason):
    found = position_bias(*arguments)
    assert found.value is None
    assert found.undefined == reason
    assert position_said(found)


def test_a_choice_that_is_none_is_refused():
    with pytest.raises(ValueError, match="chose_left"):
        position_bias([1], [1], [2], [True])


@pytest.mark.parametrize(("k", "n"), [(0, 1), (0, 9), (9, 9), (30, 41), (512, 1000), (5, 10)])
def test_the_binomial_test_is_exact(k, n):
    assert binomial_test(k, n) == pytest.approx(binomtest(k, n).pvalue)


def test_a_million_votes_are_counted_in_linear_time():
    votes = crowd_of_sides(1, b=0.2, pairs=200_000, people=25, votes=5)
    start = time.process_time()
    found = position_bias(*votes)
    assert time.process_time() - start < 60  # quadratic takes hours
    assert found.logit_low <= 0.2 <= found.logit_high
    assert found.n == 1_000_000
