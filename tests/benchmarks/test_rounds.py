"""The people of the benchmark of rounds: how they err is what their habits say."""

import math
import random
from itertools import product

import pytest

from benchmarks.overoptimization_world.gold import Gold
from benchmarks.overoptimization_world.language import WANTED, Question, demonstrations, questions
from benchmarks.rounds import said
from benchmarks.rounds_world.choosing import rows_chosen
from benchmarks.rounds_world.figures import Result, RoundFigures, read, write
from benchmarks.rounds_world.people import (
    FLIPS,
    LEFT,
    RIGHT,
    TIE,
    Habits,
    Pair,
    Told,
    calibrated,
    crowd,
    expected_flips,
    measured,
)
from measures.intervals import t_interval
from measures.selection import D_OPTIMAL, RANDOM

GOLD = Gold(3)
ASKED = Question("briefly", ("cat", "sea"))


def written() -> list[Pair]:
    asked, _ = questions(3)
    texts = demonstrations(asked, GOLD.facts | GOLD.details, per_question=2, seed=3)
    return [(q, texts[2 * n], texts[2 * n + 1]) for n, q in enumerate(asked)]


def alike(**habits: float) -> Habits:
    """People who are all the same, and flawless but for what is said."""
    flawless = {"taste": 0.0, "tie": 0.0, "fatigue": 0.0}
    sure = dict.fromkeys(("per_word", "pull", "lapse"), (0.0, 0.0))
    return Habits(**flawless | sure | habits)  # type: ignore[arg-type]


def test_a_quarter_of_their_votes_go_against_the_hidden_utility():
    pairs, people = written(), crowd(12, Habits(), seed="a test")
    people = calibrated(GOLD, people, pairs, done=25)
    draw = random.Random(1)
    told = []
    for n, ((q, a, b), person) in enumerate(product(pairs, people * 3)):
        left, right = (a, b) if n % 2 else (b, a)
        vote = person.says(GOLD, q, left, right, draw, done=25)
        told.append(Told(GOLD(q, left) - GOLD(q, right), vote))
    found = measured(told)
    assert found.votes > 4_000
    assert 0.23 < found.flips < 0.27
    assert found.flips == pytest.approx(expected_flips(GOLD, people, pairs, done=25), abs=0.02)
    assert expected_flips(GOLD, people, pairs, done=25) == pytest.approx(FLIPS, abs=1e-6)
    assert 0.0 < found.ties < 0.1


def test_the_pull_of_the_left_side_is_what_they_were_given():
    """The log-odds of "left" on two answers of one utility are pull over temperature."""
    (person,) = crowd(1, alike(pull=(0.8, 0.0), temperature=2.0), seed="a test")
    draw, n = random.Random(2), 8_000
    share = sum(person.says(GOLD, ASKED, "so", "well", draw) == LEFT for _ in range(n)) / n
    error = math.sqrt(1 / (n * share * (1 - share)))
    assert math.log(share / (1 - share)) == pytest.approx(0.4, abs=4 * error)


def test_half_of_the_lapses_show_where_nobody_could_err_and_fatigue_adds_to_them():
    best = max(FACT_WORDS, key=GOLD.facts.__getitem__)
    good, bad = f"{best} so then also perhaps and", "wonderful " * 20
    assert len(good.split()) == WANTED[ASKED.manner]
    (person,) = crowd(1, alike(lapse=(0.1, 0.0), fatigue=0.2), seed="a test")
    draw, n = random.Random(3), 4_000
    for done, lapses in ((0, 0.1), (100, 0.3)):
        wrong = sum(person.says(GOLD, ASKED, good, bad, draw, done=done) == RIGHT for _ in range(n))
        assert 2 * wrong / n == pytest.approx(lapses, abs=8 * math.sqrt(lapses / 2 / n))


FACT_WORDS = [f"{subject}-{n}" for subject in ASKED.subjects for n in (1, 2, 3)]


def test_ties_are_said_of_answers_that_seem_alike():
    (person,) = crowd(1, alike(tie=0.5), seed="a test")
    draw, n = random.Random(4), 4_000
    ties = sum(person.says(GOLD, ASKED, "so", "well", draw) == TIE for _ in range(n)) / n
    assert ties == pytest.approx(math.tanh(0.25), abs=0.03)  # 1 − 2σ(−τ)


def test_people_who_love_length_cannot_be_calibrated_to_few_flips():
    lovers = crowd(3, alike(per_word=(50.0, 0.0)), seed="a test")
    padded = [(q, a, f"{a} so then well") for q, a, _ in written()[:20]]
    with pytest.raises(ValueError, match="at any temperature"):
        calibrated(GOLD, lovers, padded)


def test_chosen_pairs_are_as_many_and_tell_more_apart():
    rows = [
        {"prompt": f"question {n}", "response_a": "so well", "response_b": "well so"}
        for n in range(80)
    ]
    informative = {
        "prompt": "another",
        "response_a": "cat-1 sea-2",
        "response_b": "detail-7 moon-1",
    }
    rows += [informative] * 4
    for strategy in (RANDOM, D_OPTIMAL):
        assert len(rows_chosen(rows, 20, strategy=strategy, seed=5)) == 20
    chosen = rows_chosen(rows, 20, strategy=D_OPTIMAL, seed=5)
    assert sum(row is informative for row in chosen) == 4, "all that differ are asked"
    assert rows_chosen(rows, 20, strategy=RANDOM, seed=5) == rows_chosen(
        rows, 20, strategy=RANDOM, seed=5
    )


def figures(**more: object) -> RoundFigures:
    return RoundFigures(600, 0.25, 0.03, 0.5, 200, 0.65, 0.7, **more)  # type: ignore[arg-type]


def test_only_a_rule_or_a_red_line_counts_as_a_stop(tmp_path):
    let = {"stopped": "", "critical": [], "warned": ["length"], "gates": {"staging": []}}
    assert figures(objections=let).stopped_by == []
    assert figures(objections=let | {"stopped": "guard_held_out_down"}).stopped_by
    red = figures(objections=let | {"gates": {"staging": ["evaluation"]}})
    assert red.stopped_by == ["gate of staging: evaluation"]
    result = Result(7, [red], figures(), red, 1.0)
    write(result, tmp_path / "seed.json")
    assert read(tmp_path / "seed.json") == result


@pytest.mark.parametrize(
    ("rises", "words"),
    [([0.1, 0.11, 0.12], "rose"), ([-0.1, 0.1, 0.0], "NOT shown"), ([-0.2, -0.21], "FELL")],
)
def test_no_rise_is_claimed_whose_interval_holds_nothing(rises, words):
    gold = t_interval([0.8, 0.81, 0.82])
    assert words in said([gold], t_interval(rises))
    assert "no claim" in said([t_interval([0.9])], t_interval([0.1]))
