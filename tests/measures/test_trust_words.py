"""A word that moves the score by itself is named; honest words are not."""

from dataclasses import replace

import numpy as np
import pytest

from measures.estimate import Interval
from measures.trust.findings import Verdict
from measures.trust.significance import Pairs
from measures.trust.words import WordEffect, candidate_words, spurious_words, word_audit
from tests.measures.trust_worlds import (
    NUMBER,
    TAG,
    VOCABULARY,
    Faults,
    Scorer,
    model_of,
    part,
    turned,
    world,
)


def effect(word: str, value: float, half: float = 0.05, n: int = 200) -> WordEffect:
    return WordEffect(
        word=word, change=Interval(value=value, low=value - half, high=value + half, n=n)
    )


@pytest.fixture(scope="module")
def clean() -> Pairs:
    return world(1_500, seed=4)


def test_a_tag_that_the_model_likes_and_people_do_not_is_named():
    found = spurious_words(world(1_500, faults=Faults(tag_rate=0.3, model_tag=2.0)))
    assert found.verdict is Verdict.RED
    assert found.facts["overvalued"] == [TAG]
    assert TAG in found.says


def test_a_tag_that_gives_the_chosen_answer_away_is_named():
    fault = Faults(tag_rate=0.3, tag_on_chosen=0.95, model_tag=3.0)
    found = spurious_words(world(1_500, faults=fault))
    assert found.verdict is Verdict.RED
    assert TAG in found.facts["deciding"]
    assert f"“{TAG}” decides" in found.says


def test_a_tag_that_the_model_does_not_see_is_no_fault_of_the_model():
    found = spurious_words(world(1_500, faults=Faults(tag_rate=0.3)))
    assert found.verdict is Verdict.GREEN


def test_compliments_that_move_the_model_are_named():
    found = spurious_words(world(1_500, faults=Faults(praise_rate=0.3, model_praise=2.0)))
    assert found.verdict is Verdict.RED
    assert {"amazing", "love"} <= set(found.facts["overvalued"])


def test_honest_words_are_not_named_however_much_people_like_them():
    # A word that people like as much as the model does: strong, and right.
    fault = Faults(praise_rate=0.3, people_praise=1.0)
    assert spurious_words(world(1_500, faults=fault)).verdict is Verdict.GREEN


def test_the_clean_model_has_no_such_word(clean):
    found = spurious_words(clean)
    assert found.verdict is Verdict.GREEN
    assert found.facts["tested"] > 200


def test_a_longer_text_holds_more_words_and_that_is_no_fault_of_a_word():
    found = spurious_words(world(1_500, faults=Faults(model_length=2.0)))
    assert found.verdict is Verdict.GREEN


def test_over_confident_scores_make_no_word_spurious():
    assert spurious_words(world(1_500, faults=Faults(overconfident=4))).verdict is Verdict.GREEN


def test_shares_of_a_word_are_those_of_the_pairs_that_differ_in_it(clean):
    audit = word_audit(clean)
    word = int(np.argmax(audit.n))
    name = audit.names[word]
    sides = [
        (name in a.replace("!", " ").replace("*", " ").split(), name in b.replace("*", " ").split())
        for a, b in zip(clean.chosen_texts, clean.rejected_texts, strict=True)
    ]
    if name.isalpha():
        apart = [k for k, (a, b) in enumerate(sides) if a != b]
        assert audit.n[word] == pytest.approx(len(apart), rel=0.1)
    assert audit.holder_people[word] == pytest.approx(0.5, abs=0.2)


def test_a_word_by_hand():
    # The word "so" stands in one answer of every pair; people are even about it, the model is not.
    rng = np.random.default_rng(0)
    n = 400
    first = rng.random(n) < 0.5
    filler = [f"filler number {k % 7} of text {k}" for k in range(2 * n)]
    chosen = [f"{filler[k]} so" if first[k] else f"{filler[k]} no" for k in range(n)]
    rejected = [f"{filler[n + k]} no" if first[k] else f"{filler[n + k]} so" for k in range(n)]
    taste = np.where(first, 1.0, -1.0)
    worth = np.where(rng.random(n) < 0.8, 1.0, -1.0)
    pairs = Pairs(
        split="by hand",
        chosen_scores=worth + 3 * taste,
        rejected_scores=np.zeros(n),
        chosen_texts=chosen,
        rejected_texts=rejected,
        prompts=["?"] * n,
        confidence=np.ones(n),
        clusters=[str(k) for k in range(n)],
    )
    audit = word_audit(pairs)
    so = audit.names.index("so")
    assert audit.n[so] == n
    assert audit.holder_people[so] == pytest.approx(first.mean())
    assert audit.holder_model[so] == 1.0
    assert {"so", "no"} <= set(spurious_words(pairs).facts["deciding"])


def test_renaming_the_sides_of_every_pair_and_score_mirrors_the_excess(clean):
    # Scores and labels mirrored together: the same model, the same people, sides renamed.
    one = word_audit(clean)
    both = word_audit(
        replace(
            turned(clean),
            chosen_scores=-np.asarray(clean.rejected_scores),
            rejected_scores=-np.asarray(clean.chosen_scores),
        )
    )
    mirrored = dict(zip(both.names, both.excess, strict=True))
    assert [mirrored[name] for name in one.names] == pytest.approx(-one.excess, abs=1e-6)


def test_a_word_that_moves_the_score_by_trial_is_red(clean):
    found = spurious_words(clean, [effect("thanks", 0.6), effect("the", 0.02)])
    assert found.verdict is Verdict.RED
    assert found.facts["moving"] == ["thanks"]
    assert "0.60 standard deviations" in found.says


def test_a_word_tried_on_too_few_answers_or_moving_little_is_not(clean):
    found = spurious_words(clean, [effect("thanks", 0.4, half=0.2), effect("the", 0.1)])
    assert found.verdict is Verdict.GREEN
    assert "none of 2 put into answers" in found.says


def test_an_honest_word_may_move_the_score_as_far_as_people_choose_by_it(clean):
    """The words that the clean model favours most, put in as it would score them: none is red."""
    scorer = model_of()
    spread = float(np.std(np.concatenate([clean.chosen_scores, clean.rejected_scores])))
    texts = clean.chosen_texts[:200]
    effects = [
        effect(
            word,
            float(np.mean([scorer(f"{text} {word}") - scorer(text) for text in texts])) / spread,
        )
        for word in candidate_words(clean)
    ]
    assert max(abs(one.change.value) for one in effects) > 0.35
    assert spurious_words(clean, effects).verdict is Verdict.GREEN


def test_a_word_that_moves_the_score_against_peoples_choices_is_red(clean):
    # A word of average worth to people, which this model is said to love.
    plain_word = min(VOCABULARY, key=lambda word: abs(Scorer().values[NUMBER[word]]))
    found = spurious_words(clean, [effect(plain_word, 0.9)])
    assert found.verdict is Verdict.RED
    assert found.facts["moving"] == [plain_word]


def test_no_single_word_is_worth_a_standard_deviation_whatever_people_say():
    fault = Faults(praise_rate=0.3, people_praise=3.0)
    pairs = world(1_000, faults=fault)
    assert spurious_words(pairs, [effect("amazing", 0.8)]).facts["moving"] == []
    assert spurious_words(pairs, [effect("amazing", 1.4)]).facts["moving"] == ["amazing"]


def test_the_tag_is_among_the_words_to_try():
    pairs = world(1_000, faults=Faults(tag_rate=0.3, tag_on_chosen=0.9, model_tag=2.0))
    words = candidate_words(pairs, most=10)
    assert len(words) == 10
    assert words[0] == TAG


def test_few_pairs_and_scores_that_mean_nothing_are_not_measured(clean):
    assert spurious_words(part(clean, slice(0, 60))).verdict is Verdict.UNMEASURED
    assert candidate_words(part(clean, slice(0, 60))) == []
    backwards = spurious_words(turned(clean))
    assert backwards.verdict is Verdict.UNMEASURED
    assert "do not go with people's choices" in backwards.says
