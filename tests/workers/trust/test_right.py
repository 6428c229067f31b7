"""Is it right: accuracy, baselines, memory, unseen people.

False alarms on clean worlds are counted in `test_trust_false_alarms`.
"""

from dataclasses import replace

import numpy as np
import pytest

from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.significance import Pairs
from tests.workers.trust.worlds import Faults, part, turned, world
from workers.trust.right import (
    accuracy,
    beats_length,
    beats_words,
    overfit,
    unseen_people,
    word_margins,
)

RED, GREEN, UNMEASURED = Verdict.RED, Verdict.GREEN, Verdict.UNMEASURED


def pairs_of(margins, *, chosen=None, rejected=None, confidence=None, annotators=()) -> Pairs:
    """Pairs of their own prompts, with the margins given."""
    n = len(margins)
    return Pairs(
        split="by hand",
        chosen_scores=np.asarray(margins, float),
        rejected_scores=np.zeros(n),
        chosen_texts=chosen or ["yes"] * n,
        rejected_texts=rejected or ["no!"] * n,
        prompts=["?"] * n,
        confidence=np.ones(n) if confidence is None else np.asarray(confidence, float),
        clusters=[f"prompt {k}" for k in range(n)],
        annotators=annotators,
    )


def right_in(n: int, right: int) -> np.ndarray:
    return np.where(np.arange(n) < right, 1.0, -1.0)


@pytest.fixture(scope="module")
def clean() -> Pairs:
    return world(2_000, seed=3)


# --- accuracy ------------------------------------------------------------------------------------


def test_three_of_four_pairs_right_are_seventy_five_per_cent():
    found = accuracy(pairs_of(right_in(400, 300)))
    assert found.verdict is GREEN
    assert found.figure.value == 0.75
    # By hand: 0.75 ± 1.96 √(0.75 · 0.25 / 400) = 0.75 ± 0.0424.
    assert (found.figure.low, found.figure.high) == pytest.approx((0.7076, 0.7924), abs=0.006)
    assert "75.0 %" in found.says
    assert "400" in found.says


def test_ties_in_the_scores_count_half_and_rows_without_a_preferred_side_not_at_all():
    margins = np.concatenate([np.ones(100), np.zeros(100), np.ones(50)])
    confidence = np.concatenate([np.ones(200), np.full(50, 0.5)])
    found = accuracy(pairs_of(margins, confidence=confidence))
    assert found.figure.value == 0.75
    assert found.figure.n == 200
    assert found.facts["ties"] == 100
    assert found.facts["no_preferred_side"] == 50


def test_a_model_that_is_right_in_55_per_cent_is_a_no_go():
    found = accuracy(pairs_of(right_in(1_000, 550)))
    assert found.verdict is RED
    assert "under 60 %" in found.says


def test_an_interval_that_reaches_60_per_cent_is_no_yes():
    found = accuracy(pairs_of(right_in(200, 126)))
    assert found.verdict is RED
    assert "60 % with 200 pairs" in found.says


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"flipped": True}, "point the wrong way"),
        ({"blind": True}, "%"),
        ({"constant": True}, "the same score"),
        ({"swapped": 1.0}, "point the wrong way"),
    ],
)
def test_scores_that_mean_nothing_or_the_opposite_are_red(fault, words):
    found = accuracy(world(600, faults=Faults(**fault)))
    assert found.verdict is RED
    assert words in found.says


def test_a_model_that_is_always_right_has_an_interval_all_the_same():
    found = accuracy(pairs_of(np.ones(300)))
    assert found.verdict is GREEN
    assert 0.98 < found.figure.low < 1


def test_sixty_pairs_are_never_green_however_good_the_model():
    sixty = pairs_of(np.ones(60), chosen=["longer"] * 30 + ["x"] * 30)
    train = world(200, seed=9)
    for found in (
        accuracy(sixty),
        beats_length(sixty),
        beats_words(sixty, -np.ones(60)),
        overfit(train, sixty),
        unseen_people(train, sixty),
    ):
        assert found.verdict is not GREEN, found.says


def test_changing_sides_mirrors_the_accuracy(clean: Pairs):
    one, other = accuracy(clean).figure, accuracy(turned(clean)).figure
    assert one.value == pytest.approx(1 - other.value)
    assert one.low == pytest.approx(1 - other.high)


def test_nine_prompts_are_too_few_for_an_interval():
    found = accuracy(
        replace(pairs_of(right_in(900, 800)), clusters=[f"{k % 9}" for k in range(900)])
    )
    assert found.verdict is UNMEASURED
    assert "9" in found.says


def test_no_pairs_are_not_measured():
    found = accuracy(pairs_of([]))
    assert found.verdict is UNMEASURED


# --- beside rules that read nothing --------------------------------------------------------------


def test_a_model_that_is_length_is_no_better_than_length(clean: Pairs):
    one, two = clean.lengths
    found = beats_length(replace(clean, chosen_scores=one, rejected_scores=two))
    assert found.verdict is RED
    assert "“the longer one" in found.says


def test_where_the_shorter_wins_the_model_must_beat_that_rule():
    n = 400
    chosen = ["short" if k < 300 else "a longer one" for k in range(n)]
    rejected = ["a longer one" if k < 300 else "short" for k in range(n)]
    found = beats_length(pairs_of(right_in(n, 240), chosen=chosen, rejected=rejected))
    # The longer one wins 25 %, so the shorter 75 %; the model's 60 % beats the first only.
    assert found.verdict is RED
    assert "wins” 75.0 %" in found.says
    assert found.facts["difference"] == pytest.approx(-0.15)


def test_the_clean_model_beats_length_and_counted_words(clean: Pairs):
    words = word_margins(world(800, seed=4), clean)
    assert beats_length(clean).verdict is GREEN
    found = beats_words(clean, words)
    assert found.verdict is GREEN
    assert 0.6 < found.facts["words"] < found.facts["model"]


def test_a_model_of_noise_loses_to_counted_words():
    blind = world(800, seed=5, faults=Faults(blind=True))
    found = beats_words(blind, word_margins(world(800, seed=4), blind))
    assert found.verdict is RED
    assert "a list of" in found.says


def test_without_training_pairs_counted_words_are_not_measured(clean: Pairs):
    assert beats_words(clean, None).verdict is UNMEASURED


def test_changing_sides_negates_the_margins_of_counted_words(clean: Pairs):
    train = world(400, seed=6)
    margins = word_margins(train, part(clean, slice(0, 300)))
    assert word_margins(train, turned(part(clean, slice(0, 300)))) == pytest.approx(-margins)
    assert word_margins(turned(train), part(clean, slice(0, 300))) == pytest.approx(
        -margins, abs=1e-3
    )


def test_words_that_no_training_text_holds_move_nothing_but_length():
    train = world(300, seed=6)
    asked = pairs_of([1.0, 1.0], chosen=["xylo xylo", "quux quux"], rejected=["ba", "ba"])
    one, other = word_margins(train, asked)
    assert one == pytest.approx(other)


def test_rows_on_which_people_are_split_teach_counted_words_nothing():
    train = world(300, seed=6)
    split = replace(train, confidence=np.full(300, 0.5))
    assert word_margins(split, world(50, seed=7)) == pytest.approx(np.zeros(50), abs=1e-6)


# --- memory and people ---------------------------------------------------------------------------


def test_five_hundred_pairs_known_by_heart_are_seen():
    train = world(500, seed=11, faults=Faults(memorised=True), split="train")
    held_out = world(500, seed=12, faults=Faults(noise=2.5))
    found = overfit(train, held_out)
    assert found.verdict is RED
    assert "by heart" in found.says


def test_the_gap_is_the_difference_with_the_error_of_both():
    found = overfit(pairs_of(right_in(400, 360)), pairs_of(right_in(400, 320)))
    assert found.verdict is GREEN
    assert found.facts["gap"] == pytest.approx(0.1)
    # By hand: √(0.9 · 0.1/400 + 0.8 · 0.2/400) = 0.025, times 1.96.
    assert found.facts["gap_low"] == pytest.approx(0.1 - 0.049, abs=0.006)
    assert found.facts["gap_high"] == pytest.approx(0.1 + 0.049, abs=0.006)


def test_a_gap_of_sixteen_points_is_over_the_limit_and_one_of_fourteen_is_not():
    train = pairs_of(right_in(1_000, 900))
    assert overfit(train, pairs_of(right_in(1_000, 740))).verdict is RED
    assert overfit(train, pairs_of(right_in(1_000, 760))).verdict is GREEN


def test_too_few_pairs_to_see_memorising_are_not_called_learned():
    found = overfit(pairs_of(right_in(1_000, 800)), pairs_of(right_in(30, 22)))
    assert found.verdict is UNMEASURED
    assert "needed" in found.says


def test_a_model_that_serves_a_fifth_of_raters_who_love_length_is_worse_for_others():
    taste = 3.0
    seen = world(2_000, seed=1, faults=Faults(length_raters=0.2, model_length=taste))
    unseen = world(2_000, seed=11, faults=Faults(model_length=taste))
    found = unseen_people(seen, unseen)
    assert found.verdict is RED
    assert found.facts["gap_low"] > 0


def test_a_model_that_knows_nothing_has_neither_memory_nor_gaps():
    blind = world(1_000, faults=Faults(blind=True))
    for found in (overfit(blind, blind), unseen_people(blind, blind)):
        assert found.verdict is UNMEASURED
        assert "nothing to compare" in found.says


def test_people_alike_leave_no_gap(clean: Pairs):
    assert unseen_people(world(2_000, seed=8), clean).verdict is GREEN


def test_a_few_annotators_with_habits_widen_the_interval():
    # Twelve people, each of whom the model is either always or never right about.
    n = 1_200
    people = [f"annotator {k % 12}" for k in range(n)]
    seen = pairs_of(np.where(np.arange(n) % 12 < 9, 1.0, -1.0), annotators=people)
    unseen = pairs_of(np.where(np.arange(n) % 12 < 7, 1.0, -1.0), annotators=people)
    by_person = unseen_people(seen, unseen)
    by_row = unseen_people(replace(seen, annotators=()), replace(unseen, annotators=()))
    assert by_row.verdict is RED
    assert by_person.verdict is UNMEASURED  # 17 points, but of twelve people


def test_without_held_out_people_or_training_pairs_nothing_is_measured(clean: Pairs):
    for found in (
        unseen_people(clean, None),
        unseen_people(None, clean),
        overfit(None, clean),
        overfit(clean, None),
    ):
        assert found.verdict is UNMEASURED
        assert found.says.endswith(".")


def test_findings_survive_json(clean: Pairs):
    found = accuracy(clean, words=clean.margins)
    assert finding_to_json(finding_from_json(finding_to_json(found))) == finding_to_json(found)
