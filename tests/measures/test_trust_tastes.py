"""Taste for length and formatting: the model's against people's, on the same pairs."""

from dataclasses import replace

import numpy as np
import pytest

from measures.trust.bias import format_taste, length_matched, length_taste, taste
from measures.trust.findings import Verdict
from measures.trust.significance import Pairs
from tests.measures.trust_worlds import Faults, part, turned, world


@pytest.fixture(scope="module")
def clean() -> Pairs:
    return world(2_000, seed=5)


def by_hand(chosen, rejected, margins) -> Pairs:
    n = len(margins)
    return Pairs(
        split="by hand",
        chosen_scores=np.asarray(margins, float),
        rejected_scores=np.zeros(n),
        chosen_texts=chosen,
        rejected_texts=rejected,
        prompts=[f"{k}" for k in range(n)],
        confidence=np.ones(n),
        clusters=[f"{k}" for k in range(n)],
    )


def test_shares_of_four_pairs_by_hand():
    # People chose the longer in the first two; the model in the first, the third and half of the
    # tie; the fifth pair is equally long and does not count.
    pairs = by_hand(
        ["long", "long", "s", "s", "same"], ["s", "s", "long", "long", "size"], [1, -1, -1, 0, 1]
    )
    one, two = pairs.lengths
    model, people, gap, rows = taste(pairs, np.sign(one - two))
    assert people.value == 0.5
    assert model.value == (1 + 0 + 1 + 0.5) / 4
    assert gap.value == pytest.approx(0.125)
    assert rows.tolist() == [True] * 4 + [False]


def test_the_clean_model_likes_length_as_people_do(clean):
    found = length_taste(clean)
    assert found.verdict is Verdict.GREEN
    assert found.facts["people"] > 0.52


def test_a_model_that_loves_length_is_red():
    found = length_taste(world(1_000, faults=Faults(model_length=2.0)))
    assert found.verdict is Verdict.RED
    assert found.facts["gap"] > 0.15
    assert found.facts["spearman"] > 0.6


def test_a_model_of_length_loving_raters_is_red_before_other_people():
    # Taught by people of whom a half choose by length, asked about people who do not.
    found = length_taste(world(1_000, seed=2, faults=Faults(model_length=1.5)))
    assert found.verdict is Verdict.RED


def test_a_model_that_shuns_length_more_than_people_is_red():
    found = length_taste(world(1_000, faults=Faults(model_length=-2.0)))
    assert found.verdict is Verdict.RED
    assert found.facts["gap"] < -0.15


def test_a_small_difference_is_not_called_one():
    found = length_taste(world(1_000, faults=Faults(model_length=0.15)))
    assert found.verdict is Verdict.GREEN


def test_a_difference_over_the_limit_by_chance_at_most_is_neither_red_nor_green():
    # People prefer the longer in 600 of 1,000, the model in 480 of those and in 185 of the others:
    # 6.5 points. By hand: 1.96 √((0.305 − 0.065²)/1000) = 3.4, so from 3.1 to 9.9.
    row = np.arange(1_000)
    longer = row < 600
    wrong = (row < 120) | (row >= 815)
    pairs = by_hand(
        ["long" if yes else "s" for yes in longer],
        ["s" if yes else "long" for yes in longer],
        np.where(wrong, -1, 1),
    )
    found = length_taste(pairs)
    assert found.verdict is Verdict.UNMEASURED
    assert "but not by more than chance" in found.says


def test_changing_sides_mirrors_people_and_leaves_the_model(clean):
    one, other = length_taste(clean).facts, length_taste(turned(clean)).facts
    assert other["model"] == pytest.approx(one["model"])
    assert other["people"] == pytest.approx(1 - one["people"])
    assert other["spearman"] == pytest.approx(one["spearman"], abs=0.02)


def test_equally_long_answers_say_nothing_about_length():
    pairs = by_hand(["aa"] * 300, ["bb"] * 300, [1.0] * 300)
    assert length_taste(pairs).verdict is Verdict.UNMEASURED


def test_the_clean_model_is_right_where_lengths_are_alike(clean):
    found = length_matched(clean)
    assert found.verdict is Verdict.GREEN
    one, two = clean.lengths
    alike = np.abs(one - two) / np.maximum(one, two) < 0.1
    assert found.facts["n_matched"] == alike.sum()
    assert found.facts["matched"] == pytest.approx(clean.credit()[alike].mean())


def test_a_model_that_is_length_is_lost_where_lengths_are_alike(clean):
    one, two = clean.lengths
    rng = np.random.default_rng(1)
    short = [np.round(value / 40) + rng.normal(0, 0.01, len(value)) for value in (one, two)]
    found = length_matched(replace(clean, chosen_scores=short[0], rejected_scores=short[1]))
    assert found.verdict is Verdict.RED


def test_a_model_that_likes_lists_is_red():
    found = format_taste(world(1_500, faults=Faults(model_format=2.0)))
    assert found.verdict is Verdict.RED
    assert "a list" in found.says
    assert set(found.facts["liked_or_avoided"]) == {"a list", "any Markdown"}


def test_the_clean_model_likes_formatting_as_people_do(clean):
    found = format_taste(clean)
    assert found.verdict is Verdict.GREEN
    assert "a list" in found.facts["measured"]


def test_plain_texts_have_no_formatting_to_like():
    pairs = by_hand(["plain words"] * 300, ["other words"] * 300, [1.0] * 300)
    assert format_taste(pairs).verdict is Verdict.UNMEASURED


def test_sixty_pairs_show_no_taste(clean):
    few = part(clean, slice(0, 60))
    for line in (length_taste, length_matched, format_taste):
        assert line(few).verdict is Verdict.UNMEASURED


def test_what_a_model_thinks_of_one_answer_is_no_taste_for_its_marks():
    # One answer ends with a question mark and stands in forty pairs; the model dislikes it.
    n = 200
    asks = np.arange(n) < 40
    chosen = ["Why not?" if k < 20 else f"Yes {k}." for k in range(n)]
    rejected = ["Why not?" if 20 <= k < 40 else f"No {k}." for k in range(n)]
    margins = np.where(asks, np.where(np.arange(n) < 20, -1.0, 1.0), 1.0)
    pairs = replace(by_hand(chosen, rejected, margins), prompts=["Shall we?"] * n)
    found = format_taste(pairs)
    assert found.verdict is Verdict.UNMEASURED
    assert "only 1 different answers" not in found.says
    assert "one answer has the mark" in found.says
    # Forty different ones are a taste.
    many = [f"{text[:-1]} {k}?" if text == "Why not?" else text for k, text in enumerate(chosen)]
    more = [f"{text[:-1]} {k}?" if text == "Why not?" else text for k, text in enumerate(rejected)]
    assert (
        format_taste(replace(pairs, chosen_texts=many, rejected_texts=more)).verdict is Verdict.RED
    )
