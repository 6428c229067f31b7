"""Each figure is what one counts by hand, and says why when it is none."""

import time
from dataclasses import replace

import numpy as np
import pytest

from measures.annotators import Repeats, crowd_figures, people_of
from measures.annotators.work import others_of
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
    with pytest.raises(ValueError, match="one entry per vote"):
        work_of([(0, 0, A)], left=[1, 0])
    with pytest.raises(ValueError, match="n_people"):
        work_of([(3, 0, A)], n_people=2)


def test_a_crowd_of_thousands_takes_seconds():
    work = team(1, people=300, pairs=60_000, votes=4)
    start = time.process_time()
    assert len(people_of(crowd_figures(work))) == 300
    assert time.process_time() - start < 3
