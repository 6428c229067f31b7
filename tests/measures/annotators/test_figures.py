"""Each figure is what one counts by hand, and says why when it is none."""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from apps.agreement.reports.person import people_of
from measures.annotators import LEVEL, Kind, Repeats, crowd_figures, holm
from measures.annotators.sides import pulls_of
from measures.annotators.work import others_of, tail_at_least, tail_at_most
from tests.measures.annotators.people import team, work_of

A, B, TIE = 0, 1, 2


def test_others_leave_out_the_own_vote():
    # One pair: a, a, b, tie. Another with a single vote.
    found = others_of(work_of([(0, 0, A), (1, 0, A), (2, 0, B), (3, 0, TIE), (0, 1, A)]))
    assert found.same[:4] == pytest.approx([1 / 3, 1 / 3, 0, 0])
    # Among the three others of the b: a, a, tie agree in one of three pairs.
    assert found.alike[:4] == pytest.approx([0, 0, 1 / 3, 1 / 3])
    assert found.neither[:4] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert np.isnan([found.same[4], found.alike[4], found.neither[4], found.longer[4]]).all()


def test_length_preference_is_beside_what_others_chose_on_the_same_pairs():
    # Person 0 chose the longer answer twice of two; the others one of two on the first pair and
    # two of two on the second.
    work = work_of(
        [(0, 0, A), (1, 0, A), (2, 0, B), (0, 1, B), (1, 1, B), (2, 1, B), (0, 2, TIE), (1, 2, A)],
        longer=[1, 1, 0, 1, 1, 1, -1, 1],
    )
    longer = people_of(crowd_figures(work))[0].figures["longer"]
    assert (longer["value"], longer["n"]) == (1.0, 2)
    assert longer["compared"] == pytest.approx(0.75)
    # Too few to measure agreement: the best judge would show ½ + 4.5 · ¼, which is more than all.
    assert longer["expected"] == 1.0
    assert longer["difference"] == pytest.approx(0.0)
    assert "too few" in longer["few"]


def test_times_gold_and_sides_are_counted():
    work = work_of(
        [(0, i, A) for i in range(5)],
        active_ms=[1000, 1999, 2000, 9000, -1],
        left=[1, 1, 0, -1, 1],
        gold=[A, B, -1, A, TIE],
    )
    figures = people_of(crowd_figures(work))[0].figures
    assert figures["median_ms"] == 1999.5
    assert (figures["fast"]["value"], figures["fast"]["n"]) == (0.5, 4)
    assert (figures["left"]["value"], figures["left"]["n"]) == (0.75, 4)
    assert (figures["gold"]["value"], figures["gold"]["n"]) == (0.5, 4)
    assert sum(figures["speeds"]) == 4


def test_what_was_not_seen_says_so():
    figures = people_of(crowd_figures(work_of([(0, 0, TIE), (0, 1, A)])))[0].figures
    for name, why in [
        ("fast", "no answer was timed"),
        ("left", "known side"),
        ("ties", "nobody else"),
        ("longer", "unequal length"),
        ("gold", "no gold pair"),
        ("self", "no hidden repeat"),
        ("agreement", "nobody else"),
        ("skill", "too few"),
        ("drift", "too few"),
    ]:
        assert figures[name]["value"] is None
        assert why in figures[name]["undefined"]


def test_consistency_gives_back_how_often_somebody_is_right():
    # Somebody right in 80 % of independent answers repeats them in .8² + .2² = 68 %.
    n = 100
    repeats = Repeats(
        who=np.zeros(n, int),
        first=np.zeros(n, int),
        again=(np.arange(n) >= 68).astype(int),
        first_left=np.ones(n, int),
        again_left=(np.arange(n) >= 68).astype(int),
    )
    figures = people_of(crowd_figures(work_of([(0, 0, A)]), repeats))[0].figures
    assert figures["self"]["value"] == 0.68
    assert figures["self_accuracy"]["value"] == pytest.approx(0.8)


def test_only_pairs_drawn_at_random_count_for_agreement():
    rows = [(who, pair, A) for pair in range(40) for who in range(3)]
    picked = [(who, pair, who % 2) for pair in range(40, 80) for who in range(3)]
    work = work_of(rows + picked, random=[True] * 120 + [False] * 120)
    agreement = people_of(crowd_figures(work))[0].figures["agreement"]
    assert (agreement["value"], agreement["n"]) == (1.0, 40)


def test_skill_finds_back_who_is_how_good():
    # With δ = 2 P(right) − 1 of .8, .6, .6, .6 the first is at .8 / .6 of the others' skill.
    rng = np.random.default_rng(5)
    right = np.array([0.9, 0.8, 0.8, 0.8])
    pairs, people = 4000, 4
    truth = rng.integers(0, 2, pairs)
    votes = np.where(rng.random((pairs, people)) < right, truth[:, None], 1 - truth[:, None])
    rows = [(k, i, votes[i, k]) for i in range(pairs) for k in range(people)]
    figures = people_of(crowd_figures(work_of(rows)))
    skill = figures[0].figures["skill"]
    assert skill["low"] <= 4 / 3 <= skill["high"]
    assert skill["high"] - skill["low"] < 0.2
    # The second's others are at .8, .6 and .6: (.6 · ⅔) / ((.48 + .48 + .36) / 3) = .4 / .44.
    assert figures[1].figures["skill"]["value"] == pytest.approx(0.4 / 0.44, abs=0.06)


def test_where_nobody_agrees_no_one_is_the_odd_one():
    rng = np.random.default_rng(0)
    rows = [(k, i, int(rng.integers(0, 2))) for i in range(200) for k in range(4)]
    person = people_of(crowd_figures(work_of(rows)))[0]
    assert "do not agree" in person.figures["skill"]["undefined"]
    assert not person.flags


def test_the_timeline_holds_every_vote_that_counts_in_order():
    work = team(1, habit="tired", pairs=2000)
    timeline = people_of(crowd_figures(work))[0].figures["timeline"]
    assert len(timeline) == 12
    assert sum(part["n"] for part in timeline) == (work.who == 0).sum()
    assert timeline[0]["low"] > timeline[-1]["high"]


def test_without_times_nothing_is_said_of_change():
    work = replace(team(1, habit="tired", pairs=2000), ordered=np.zeros(8, dtype=bool))
    figures = people_of(crowd_figures(work))[0].figures
    assert figures["timeline"] == []
    assert "no times" in figures["drift"]["undefined"]


def test_entries_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="per vote"):
        work_of([(0, 0, A)], left=[1, 0])
    with pytest.raises(ValueError, match="n_people"):
        work_of([(3, 0, A)], n_people=2)


def test_a_crowd_of_hundreds_takes_linear_time():
    work = team(1, people=300, pairs=60_000, votes=4)
    start = time.process_time()
    assert len(people_of(crowd_figures(work))) == 300
    assert time.process_time() - start < 60  # quadratic takes hours


# Planted habits are named with evidence; honest people, however different, are left alone.


def kinds_of(person):
    return [flag.kind for flag in person.flags]


@pytest.mark.parametrize(
    ("habit", "kind", "words"),
    [
        ("left", Kind.LEFT, "Chose the answer on the left in"),
        ("right", Kind.RIGHT, "Chose the answer on the right in"),
        ("speed", Kind.SPEED, "Answered in under 2 s in"),
        ("length", Kind.LONGER, "Chose the longer answer in"),
        ("ties", Kind.TIES, "Chose neither answer in"),
        ("reverse", Kind.REVERSE, "below 0 their reverse"),
    ],
)
def test_a_planted_habit_is_named_with_its_evidence(habit, kind, words):
    others = []
    for seed in range(5):
        people = people_of(crowd_figures(team(seed, habit=habit, accuracy=(0.75, 0.95))))
        assert kind in kinds_of(people[0])
        evidence = next(flag.sentence for flag in people[0].flags if flag.kind == kind)
        assert words in evidence
        assert "corrected for" in evidence
        others += [bool(person.flags) for person in people[1:]]
    assert np.mean(others) <= 0.05


def test_who_grows_tired_is_named_from_enough_votes():
    named = 0
    for seed in range(6):
        people = people_of(
            crowd_figures(team(seed, habit="tired", pairs=3000, accuracy=(0.8, 0.95)))
        )
        named += Kind.DRIFT in kinds_of(people[0])
        assert not any(kinds_of(person) for person in people[1:])
    assert named >= 5


def test_a_coin_flipper_is_named_from_enough_votes():
    people = people_of(crowd_figures(team(2, habit="coin", pairs=3000, accuracy=(0.75, 0.95))))
    assert Kind.AGREEMENT in kinds_of(people[0])
    assert "0 a coin" in people[0].flags[-1].sentence


@pytest.mark.parametrize(
    "project",
    [
        {},
        {"people": 4, "pairs": 400},
        {"people": 3, "votes": 2, "pairs": 300},
        {"people": 30, "pairs": 2000, "votes": 5},
        {"longer_wins": 0.85, "ties": False},
        {"accuracy": (0.6, 0.6)},
        {"people": 6, "pairs": 5000},
    ],
    ids=["team", "small", "pairs of votes", "crowd", "longer wins", "all weak", "many votes"],
)
def test_honest_people_are_not_flagged_in_more_than_one_in_twenty(project):
    flagged = [
        bool(person.flags)
        for seed in range(12)
        for person in people_of(crowd_figures(team(100 + seed, **project)))
    ]
    assert np.mean(flagged) <= 0.05


@pytest.mark.parametrize("votes", [2, 3])
def test_a_good_judge_is_no_length_lover_where_longer_answers_are_better(votes):
    shape = {"longer_wins": 0.9, "pairs": 4000, "votes": votes, "ties": False}
    for seed in range(3):
        crowd = team(seed, accuracy=(0.62, 0.7), best=0.98, **shape)
        figures = people_of(crowd_figures(crowd))[0]
        longer = figures.figures["longer"]
        assert longer["value"] - longer["compared"] > 0.13  # beside the others alone they stand out
        assert longer["difference_low"] < 0.1
        assert not figures.flags


def test_a_length_lover_is_named_where_longer_answers_are_better():
    people = people_of(crowd_figures(team(4, habit="length", longer_wins=0.85, pairs=1500)))
    assert kinds_of(people[0]) == [Kind.LONGER]
    assert "honest person" in people[0].flags[0].sentence


def test_honest_people_at_the_limit_are_flagged_in_at_most_one_in_twenty():
    # Everybody chooses left in exactly 55 %, the most that is let pass: the hardest honest case.
    rng = np.random.default_rng(1)
    n_people, each = 2000, 200
    who = np.repeat(np.arange(n_people), each)
    left = (rng.random(len(who)) < 0.55).astype(int)
    rows = np.column_stack([who, np.arange(len(who)), left])
    people = people_of(crowd_figures(work_of(rows.tolist(), left=left)))
    assert np.mean([bool(person.flags) for person in people]) <= LEVEL + 0.01


def test_a_side_clicker_gives_themselves_away_on_repeats():
    # Ten repeats with the sides swapped, the same side each time: the answer changes each time.
    n = 12
    work = work_of([(0, i, i % 2) for i in range(30)])
    repeats = Repeats(
        who=np.zeros(n, int),
        first=np.zeros(n, int),
        again=np.ones(n, int),
        first_left=np.ones(n, int),
        again_left=np.ones(n, int),
    )
    person = people_of(crowd_figures(work, repeats))[0]
    assert Kind.SELF in kinds_of(person)
    assert "12 of 12" in person.flags[0].sentence
    assert person.figures["self_accuracy"]["undefined"]


def gold_votes(own_right, others_right, n=40):
    """Person 0 and two others on n gold pairs (gold is A), the first so many of them right."""
    rows = [(0, i, 0 if i < own_right else 1) for i in range(n)]
    rows += [(k, i, 0 if i < others_right else 1) for k in (1, 2) for i in range(n)]
    return people_of(crowd_figures(work_of(rows, gold=[0] * len(rows))))


def test_who_misses_gold_that_others_meet_is_named():
    people = gold_votes(own_right=12, others_right=36)
    assert kinds_of(people[0])[0] == Kind.GOLD
    assert "90.0 %" in people[0].flags[0].sentence
    assert not kinds_of(people[1])


def test_gold_that_nobody_meets_tells_of_the_gold():
    assert not any(kinds_of(person) for person in gold_votes(own_right=12, others_right=12))


def test_few_votes_are_too_few_to_say():
    people = people_of(crowd_figures(team(3, habit="left", people=30, pairs=120, votes=2)))
    assert max(person.n_votes for person in people) < 20
    for person in people:
        assert person.n_tests == 0
        assert not person.flags
        assert "too few" in person.figures["left"]["few"]


def test_holms_correction_is_that_worked_out_by_hand():
    # Sorted .01 .02 .03 .6 of four tests: .04, .06, .06, .6; absent tests do not count.
    p = np.array([[0.03, 0.01, 0.6, 0.02, np.nan], [0.5, np.nan, np.nan, np.nan, np.nan]])
    corrected = holm(p)
    assert corrected[0, :4] == pytest.approx([0.06, 0.04, 0.6, 0.06])
    assert corrected[1, 0] == 0.5
    assert np.isnan(corrected[0, 4])
    assert np.isnan(corrected[1, 1:]).all()


def test_tails_are_exact():
    hits, n = np.array([0, 3, 10, 7]), np.array([5, 10, 10, 0])
    assert tail_at_least(hits[:3], n[:3], 0.3) == pytest.approx(binom.sf(hits[:3] - 1, n[:3], 0.3))
    assert tail_at_most(hits[:3], n[:3], 0.3) == pytest.approx(binom.cdf(hits[:3], n[:3], 0.3))


# The pull of a side on each person is found back, and those with few votes are drawn in.


def crowd(seed, *, b=0.3, spread=0.5, pairs=600, people=12, votes=4, merit=1.5):
    rng = np.random.default_rng(seed)
    gain = rng.normal(0, merit, pairs)
    pull = b + rng.normal(0, spread, people)
    pair = np.repeat(np.arange(pairs), votes)
    who = np.argsort(rng.random((pairs, people)), axis=1)[:, :votes].ravel()
    a_left = rng.random(len(pair)) < 0.5
    logit = pull[who] + np.where(a_left, 1, -1) * gain[pair]
    left = (rng.random(len(pair)) < 1 / (1 + np.exp(-logit))).astype(int)
    return (who, pair, left, a_left, people), pull


@pytest.mark.parametrize("shape", [{}, {"votes": 2}, {"merit": 2.5}, {"people": 60}])
def test_planted_pulls_lie_in_their_intervals_as_often_as_they_should(shape):
    inside, centres = [], []
    for seed in range(10):
        votes, planted = crowd(seed, **shape)
        found = pulls_of(*votes)
        inside += list((found.low <= planted) & (planted <= found.high))
        centres.append(found.centre)
    assert np.mean(inside) >= 0.9
    assert np.mean(centres) == pytest.approx(0.3, abs=0.1)


def test_people_who_do_not_differ_are_drawn_together():
    votes, _ = crowd(1, spread=0.0, people=100)
    found = pulls_of(*votes)
    assert np.std(found.value) < 0.1  # as counted, about 24 votes each, they differ by 0.5
    assert found.spread < 0.25


def test_a_left_clicker_stands_apart():
    (who, pair, left, a_left, people), _ = crowd(2, b=0.0, spread=0.1)
    left = np.where(who == 0, 1, left)
    found = pulls_of(who, pair, left, a_left, people)
    assert found.low[0] > 1
    assert found.value[0] > np.delete(found.high, 0).max()


def test_who_has_no_vote_is_where_the_project_is():
    votes, _ = crowd(3)
    found = pulls_of(*votes[:4], 13)
    assert found.n[12] == 0
    assert found.value[12] == pytest.approx(found.centre, abs=0.05)


def test_without_known_sides_there_is_nothing_and_it_says_so():
    found = pulls_of(*(np.array(x) for x in ([0, 1], [0, 0], [-1, -1], [True, False])), 2)
    assert found.undefined == "no_known_side"
    assert np.isnan(found.value).all()
