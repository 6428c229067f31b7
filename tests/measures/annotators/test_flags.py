"""Planted habits are named with evidence; honest people, however different, are left alone."""

import numpy as np
import pytest
from scipy.stats import binom

from measures.annotators import LEVEL, Kind, Repeats, crowd_figures, holm, people_of
from measures.annotators.work import tail_at_least, tail_at_most
from tests.measures.annotators.people import team, work_of


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
    assert "an honest person who agrees" in people[0].flags[0].sentence


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
    assert "In 12 of 12 the side stayed" in person.flags[0].sentence
    assert person.figures["self_accuracy"]["undefined"]


def gold_votes(own_right, others_right, n=40):
    """Person 0 and two others on n gold pairs (gold is A), the first so many of them right."""
    rows = [(0, i, 0 if i < own_right else 1) for i in range(n)]
    rows += [(k, i, 0 if i < others_right else 1) for k in (1, 2) for i in range(n)]
    return people_of(crowd_figures(work_of(rows, gold=[0] * len(rows))))


def test_who_misses_gold_that_others_meet_is_named():
    people = gold_votes(own_right=12, others_right=36)
    assert kinds_of(people[0])[0] == Kind.GOLD
    assert "others reach 90.0 % on the same pairs" in people[0].flags[0].sentence
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
