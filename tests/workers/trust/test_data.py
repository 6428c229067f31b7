"""A model on data it was not made for, where length may point the other way."""

import json
from dataclasses import replace

import numpy as np
import pytest

from measures.trust.findings import LINES, Verdict, finding_from_json, finding_to_json
from measures.trust.significance import Pairs
from tests.workers.trust.worlds import Faults, bare, part, turned, world
from workers.trust.bias import format_taste, length_matched, length_taste, taste
from workers.trust.calibrated import calibration_line
from workers.trust.leakage import metadata_only, prompt_only
from workers.trust.noise import label_noise
from workers.trust.out_of_domain import lean, longer_wins, other_domain
from workers.trust.right import accuracy, beats_length, beats_words, overfit, unseen_people
from workers.trust.slices import slices
from workers.trust.words import spurious_words

HOME, AWAY = 0.75, 0.35  # how often the longer answer wins


def domain(seed, *, longer, right=None, by_length=0.0, n=300):
    """Pairs in which the longer answer wins with probability `longer`. The model is right with
    probability `right` whatever the length, or goes by length in the share `by_length`."""
    rng = np.random.default_rng([seed, int(100 * longer)])
    won = rng.random(n) < longer
    long, short = rng.integers(60, 90, n), rng.integers(20, 50, n)
    good = rng.random(n) < (0.75 if right is None else right)
    good = np.where(rng.random(n) < by_length, won, good)
    return Pairs(
        split="test",
        chosen_scores=np.where(good, 1.0, -1.0) * rng.uniform(0.1, 2, n),
        rejected_scores=np.zeros(n),
        chosen_texts=["x" * int(a if w else b) for a, b, w in zip(long, short, won, strict=True)],
        rejected_texts=["x" * int(b if w else a) for a, b, w in zip(long, short, won, strict=True)],
        prompts=[f"prompt {i}" for i in range(n)],
        confidence=np.ones(n),
        clusters=[f"prompt {i}" for i in range(n)],
    )


def test_a_model_that_holds_elsewhere_is_green_in_nineteen_of_twenty():
    for longer in (0.55, AWAY):
        found = [
            other_domain(domain(seed, longer=HOME), domain(seed, longer=longer))
            for seed in range(20)
        ]
        green = sum(one.verdict is Verdict.GREEN for one in found)
        assert green >= 19, [one.says for one in found if one.verdict is Verdict.RED]


def test_a_clean_world_is_green_and_survives_json():
    found = other_domain(world(300, 1), world(300, 2))
    assert found.verdict is Verdict.GREEN
    assert finding_from_json(finding_to_json(found)) == found


def test_a_model_that_follows_length_is_red_where_length_turns_around():
    """Half its choices go by length; the rest is so good that it still beats a coin."""
    home = domain(1, longer=HOME, right=0.95, by_length=0.4)
    away = domain(1, longer=AWAY, right=0.95, by_length=0.4)
    found = other_domain(home, away)
    assert found.figure.low > 0.5
    assert found.verdict is Verdict.RED
    assert found.facts["length_turned"]
    assert found.facts["lean"] == pytest.approx(0.4, abs=0.12)


def test_a_model_that_is_length_alone_is_worse_than_a_coin_there():
    found = other_domain(domain(2, longer=HOME, by_length=1), domain(2, longer=AWAY, by_length=1))
    assert found.verdict is Verdict.RED
    assert "worse than a coin" in found.says
    assert found.facts["length_turned"]


def test_a_model_that_knows_nothing_there_cannot_be_told_from_a_coin():
    found = other_domain(domain(3, longer=HOME), domain(3, longer=0.5, right=0.5))
    assert found.verdict is Verdict.RED
    assert "from a coin" in found.says


def test_noise_is_not_taken_for_a_taste_for_length():
    """A model that is right in 60 % whatever the length prefers the longer far more often than
    people who choose it in 35 %, and has no taste for it."""
    away = domain(4, longer=AWAY, right=0.62, n=900)
    prefers = np.mean([(m > 0) == (len(c) > len(r)) for m, c, r in rows_of(away)])
    assert prefers > longer_wins(away).value + 0.08
    assert other_domain(domain(4, longer=HOME), away).verdict is Verdict.GREEN


def test_too_few_pairs_to_see_a_taste_where_length_turned_are_not_measured():
    found = other_domain(domain(8, longer=HOME), domain(8, longer=0.15, right=0.85, n=60))
    assert found.facts["length_turned"]
    assert found.verdict is Verdict.UNMEASURED, found.says
    assert "too few pairs" in found.says


def rows_of(pairs):
    return zip(pairs.margins, pairs.chosen_texts, pairs.rejected_texts, strict=True)


def test_without_the_other_data_or_with_little_nothing_is_measured():
    home = domain(5, longer=HOME)
    assert other_domain(home, None).verdict is Verdict.UNMEASURED
    assert other_domain(home, domain(5, longer=AWAY, n=40)).verdict is Verdict.UNMEASURED
    alone = other_domain(None, domain(5, longer=AWAY))
    assert alone.verdict is Verdict.GREEN
    assert "The longer answer" in alone.says


def test_a_model_that_is_always_right_there_is_green_though_nothing_varies():
    found = other_domain(domain(9, longer=HOME), domain(9, longer=AWAY, right=1.0))
    assert found.verdict is Verdict.GREEN, found.says
    assert found.facts["lean"] == 0


def test_pairs_without_a_preferred_side_are_left_out():
    away = domain(6, longer=AWAY, n=200)
    undecided = replace(away, confidence=np.where(np.arange(200) < 170, 0.5, 1.0))
    assert other_domain(None, undecided).verdict is Verdict.UNMEASURED


def test_the_lean_is_counted_by_hand():
    pairs = Pairs(
        split="test",
        chosen_scores=np.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
        rejected_scores=np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
        chosen_texts=["long", "long", "long", "s", "s", "s", "same"],
        rejected_texts=["s", "s", "s", "long", "long", "long", "same"],
        prompts=["p"] * 7,
        confidence=np.ones(7),
        clusters=[str(i) for i in range(7)],
    )
    assert lean(pairs).value == pytest.approx(2 / 3 - 1 / 3)
    assert lean(pairs).n == 6
    assert longer_wins(pairs).value == pytest.approx(3.5 / 7)


def test_the_leans_interval_covers_the_truth():
    covered = 0
    for seed in range(100):
        found = lean(domain(seed, longer=0.4, right=0.8, by_length=0.3))
        covered += found.low <= 0.3 <= found.high
    assert covered >= 90


def test_the_lean_is_undefined_where_the_longer_always_wins():
    assert lean(domain(7, longer=1.0)).undefined


# What gives the winner away without reading is found; clean columns are not accused.


N = 600


@pytest.fixture(scope="module")
def clean():
    return world(N, seed=1)


def test_a_prompt_that_says_which_was_stored_first_and_won_is_caught():
    found = prompt_only(world(N, faults=Faults(prompt_leak=0.4)))
    assert found.verdict is Verdict.RED
    assert found.facts["accuracy"] > 0.6
    assert "the order" in found.says


def test_winners_stored_first_are_caught():
    found = metadata_only(world(N, faults=Faults(order_leak=0.65)))
    assert found.verdict is Verdict.RED
    assert "were stored" in found.says


def test_one_origin_for_winners_is_caught():
    found = metadata_only(world(N, faults=Faults(source_leak=0.4)))
    assert found.verdict is Verdict.RED
    assert any("origin" in what for what in found.facts["giving"])


def test_an_annotator_who_always_takes_the_first_is_caught():
    pairs = world(1_200, annotators=5)
    mine = np.array(pairs.annotators) == "annotator 2"
    found = metadata_only(replace(pairs, order=np.where(mine, 1.0, pairs.order)))
    assert found.verdict is Verdict.RED
    assert any("annotator and month, with" in what for what in found.facts["giving"])


def test_clean_columns_tell_what_a_coin_does(clean):
    assert prompt_only(clean).verdict is Verdict.GREEN
    assert metadata_only(clean).verdict is Verdict.GREEN


def test_changing_sides_changes_nothing(clean):
    for line in (prompt_only, metadata_only):
        one, other = line(clean).facts["accuracy"], line(turned(clean)).facts["accuracy"]
        assert other == pytest.approx(one)


def test_without_columns_nothing_is_measured(clean):
    for line in (prompt_only, metadata_only):
        found = line(bare(clean))
        assert found.verdict is Verdict.UNMEASURED
        assert "does not say" in found.says or "says neither" in found.says


def test_origins_alone_can_be_looked_at(clean):
    found = metadata_only(replace(clean, order=np.zeros(0)))
    assert found.verdict is Verdict.GREEN
    assert found.facts["giving"] == []


def test_few_pairs_are_not_measured(clean):
    for line in (prompt_only, metadata_only):
        assert line(part(clean, slice(0, 60))).verdict is Verdict.UNMEASURED


def test_what_the_model_keeps_without_the_prompt_is_stated_and_does_not_decide(clean):
    half = np.where(np.arange(N) % 2 == 0, clean.margins, -clean.margins)
    found = prompt_only(clean, half)
    assert found.verdict is Verdict.GREEN
    assert found.facts["with_prompt"] == pytest.approx(clean.credit().mean())
    # Half of the rows turned over: accuracy a on one half, 1 − a on the other, so about nothing.
    assert found.facts["kept"] == pytest.approx(0, abs=0.12)
    assert "under another one" in found.says
    assert prompt_only(clean, clean.margins).facts["kept"] == pytest.approx(1)


def test_the_models_taste_for_an_origin_stands_beside_peoples(clean):
    (table,) = [block for block in metadata_only(clean).evidence if block.kind == "table"]
    origins = {row[0]: row for row in table.rows}
    assert set(origins) == {"lab", "web", "staff"}
    assert origins["lab"][3] == pytest.approx(0.5, abs=0.1)


# Odd pairs: every line answers with a finding that JSON can hold, and none is green by default.


CLEAN = world(500, seed=1)
ASKED = {
    "accuracy": lambda p: accuracy(p, words=p.margins),
    "beats_length": beats_length,
    "beats_words": lambda p: beats_words(p, np.zeros(len(p))),
    "overfit": lambda p: overfit(p, p),
    "unseen_people": lambda p: unseen_people(p, p),
    "slices": slices,
    "calibration": lambda p: calibration_line(p, p),
    "label_noise": label_noise,
    "length_taste": length_taste,
    "length_matched": length_matched,
    "format_taste": format_taste,
    "spurious_words": spurious_words,
    "prompt_only": lambda p: prompt_only(p, p.margins),
    "metadata_only": metadata_only,
}
ODD = {
    "no pairs": part(CLEAN, slice(0, 0)),
    "one pair": part(CLEAN, slice(0, 1)),
    "eleven pairs": part(CLEAN, slice(0, 11)),
    "nothing but texts": bare(CLEAN),
    "no units": replace(CLEAN, units=None),
    "one cluster": replace(CLEAN, units=None, clusters=["all"] * 500),
    "all ties of people": replace(CLEAN, confidence=np.full(500, 0.5)),
    "all ties of the model": world(500, faults=Faults(constant=True)),
    "always right": world(500, faults=Faults(memorised=True)),
    "always wrong": replace(CLEAN, chosen_scores=np.zeros(500), rejected_scores=np.ones(500)),
    "huge scores": replace(CLEAN, chosen_scores=1e6 * CLEAN.margins, rejected_scores=np.zeros(500)),
    "empty answers": replace(CLEAN, chosen_texts=[""] * 500, rejected_texts=[""] * 500),
    "the same answers": replace(CLEAN, rejected_texts=CLEAN.chosen_texts),
    "unknown columns": replace(
        CLEAN,
        groups=[""] * 500,
        annotators=[""] * 500,
        sources=[("", "")] * 500,
        times=np.full(500, np.nan),
        order=np.zeros(500),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_pairs_are_answered(name: str):
    for line, ask in ASKED.items():
        found = ask(ODD[name])
        assert found.line == line
        assert line in LINES
        assert found.says.endswith("."), found.says
        assert "nan" not in found.says.lower().split(), found.says
        as_json = finding_to_json(found)
        assert finding_to_json(finding_from_json(json.loads(json.dumps(as_json)))) == as_json
        json.dumps(as_json, allow_nan=False)


@pytest.mark.parametrize("name", ["no pairs", "one pair", "eleven pairs", "all ties of people"])
def test_nothing_to_go_by_is_never_green(name: str):
    for ask in ASKED.values():
        assert ask(ODD[name]).verdict is not Verdict.GREEN


def test_scores_that_are_no_numbers_are_an_error_and_not_a_verdict():
    broken = replace(CLEAN, chosen_scores=np.full(500, np.nan))
    with pytest.raises(ValueError, match="NaN"):
        accuracy(broken)


# Taste for length and formatting: the model's against people's, on the same pairs.


@pytest.fixture(scope="module")
def fair() -> Pairs:
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


def test_the_clean_model_likes_length_as_people_do(fair):
    found = length_taste(fair)
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
    assert "than chance" in found.says


def test_changing_sides_mirrors_people_and_leaves_the_model(fair):
    one, other = (
        length_taste(fair).facts,
        length_taste(turned(fair)).facts,
    )
    assert other["model"] == pytest.approx(one["model"])
    assert other["people"] == pytest.approx(1 - one["people"])
    assert other["spearman"] == pytest.approx(one["spearman"], abs=0.02)


def test_equally_long_answers_say_nothing_about_length():
    pairs = by_hand(["aa"] * 300, ["bb"] * 300, [1.0] * 300)
    assert length_taste(pairs).verdict is Verdict.UNMEASURED


def test_the_clean_model_is_right_where_lengths_are_alike(fair):
    found = length_matched(fair)
    assert found.verdict is Verdict.GREEN
    one, two = fair.lengths
    alike = np.abs(one - two) / np.maximum(one, two) < 0.1
    assert found.facts["n_matched"] == alike.sum()
    assert found.facts["matched"] == pytest.approx(fair.credit()[alike].mean())


def test_a_model_that_is_length_is_lost_where_lengths_are_alike(fair):
    one, two = fair.lengths
    rng = np.random.default_rng(1)
    short = [np.round(value / 40) + rng.normal(0, 0.01, len(value)) for value in (one, two)]
    found = length_matched(replace(fair, chosen_scores=short[0], rejected_scores=short[1]))
    assert found.verdict is Verdict.RED


def test_a_model_that_likes_lists_is_red():
    found = format_taste(world(1_500, faults=Faults(model_format=2.0)))
    assert found.verdict is Verdict.RED
    assert "a list" in found.says
    assert set(found.facts["liked_or_avoided"]) == {"a list", "any Markdown"}


def test_the_clean_model_likes_formatting_as_people_do(fair):
    found = format_taste(fair)
    assert found.verdict is Verdict.GREEN
    assert "a list" in found.facts["measured"]


def test_plain_texts_have_no_formatting_to_like():
    pairs = by_hand(["plain words"] * 300, ["other words"] * 300, [1.0] * 300)
    assert format_taste(pairs).verdict is Verdict.UNMEASURED


def test_sixty_pairs_show_no_taste(fair):
    few = part(fair, slice(0, 60))
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
    assert "one answer has" in found.says
    # Forty different ones are a taste.
    many = [f"{text[:-1]} {k}?" if text == "Why not?" else text for k, text in enumerate(chosen)]
    more = [f"{text[:-1]} {k}?" if text == "Why not?" else text for k, text in enumerate(rejected)]
    assert (
        format_taste(replace(pairs, chosen_texts=many, rejected_texts=more)).verdict is Verdict.RED
    )
