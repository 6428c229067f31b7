"""Empty, flattering and damaged answers as texts."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, somersd

from measures.estimate import Interval
from measures.style import marks_of
from measures.trust.findings import Verdict, finding_from_json, finding_to_json
from measures.trust.significance import Pairs
from tests.workers.trust.worlds import (
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
from workers.trust.precision import precision_line, rank_agreement
from workers.trust.probes import (
    NEUTRAL,
    PRAISE,
    SHORT,
    WORDS,
    damage_probes,
    empty_probes,
    praise_probes,
    sentences_of,
    texts_to_score,
)
from workers.trust.words import WordEffect, candidate_words, spurious_words, word_audit

BREAD = """# Bread

To bake **good** bread:

1. Mix flour and water.
2. Let it rest for an hour. Then fold it.
- **Bake it** at 230 degrees for 40 minutes.

Enjoy it while it is warm!"""
SKY = "The air scatters blue light. Red light passes through it. So the sky is blue at noon."
PROMPTS = ["How do I bake bread?", "Why is the sky blue?", "What is the capital of France?"]
ANSWERS = [BREAD, SKY, "Paris."]
MAKERS = (empty_probes, praise_probes, damage_probes)


def of(make, kind, index, seed=0):
    return next(
        probe
        for probe in make(PROMPTS, ANSWERS, seed=seed)
        if (probe.kind, probe.prompt_index) == (kind, index)
    )


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_seed_gives_the_same_probes_and_another_seed_others(make):
    assert make(PROMPTS, ANSWERS, seed=1) == make(PROMPTS, ANSWERS, seed=1)
    assert make(PROMPTS, ANSWERS, seed=1) != make(PROMPTS, ANSWERS, seed=2)


@pytest.mark.parametrize("make", MAKERS)
def test_every_probe_has_a_name_for_pages_and_differs_from_its_answer(make):
    for probe in make(PROMPTS, ANSWERS, seed=0):
        assert probe.kind in WORDS
        assert probe.text.strip()
        assert probe.text != probe.against_text == ANSWERS[probe.prompt_index]


def test_every_name_belongs_to_a_probe():
    made = {probe.kind for make in MAKERS for probe in make(PROMPTS, ANSWERS, seed=0)}
    assert made == set(WORDS)


@pytest.mark.parametrize("seed", range(5))
def test_empty_answers_are_as_long_as_the_real_one_or_a_word_longer(seed):
    for probe in empty_probes(PROMPTS[:2], ANSWERS[:2], seed=seed):
        assert len(probe.text) >= len(probe.against_text)
        assert len(probe.text) <= 1.2 * len(probe.against_text) + 15


@pytest.mark.parametrize("kind", ["hedging", "confident_nonsense"])
def test_empty_answers_keep_the_form_of_the_real_one(kind):
    probe = of(empty_probes, kind, 0)
    form = {"heading", "list", "bold"}
    assert marks_of(probe.text) & form == marks_of(BREAD) & form == form
    bullet = re.compile(r"^(?:# |\d\. |- )?", re.MULTILINE)
    assert bullet.findall(probe.text) == bullet.findall(BREAD)
    assert "bread" not in probe.text.casefold()


def test_an_answer_too_short_to_imitate_is_met_by_a_whole_short_sentence():
    assert len("Paris.") < SHORT
    assert re.fullmatch(r"[A-Z][a-z ]+\.", of(empty_probes, "hedging", 2).text)
    assert "capital of France" in of(empty_probes, "restated_prompt", 2).text


def test_compliments_stand_before_and_after_with_a_control_of_the_same_length():
    for name, words in PRAISE.items():
        before = of(praise_probes, f"praise_before_{name}", 1)
        after = of(praise_probes, f"praise_after_{name}", 1)
        assert before.text == f"{words} {SKY}"
        assert after.text == f"{SKY} {words}"
        for probe in (before, after):
            assert abs(len(probe.control_text) - len(probe.text)) <= 1
            assert SKY in probe.control_text
            assert words not in probe.control_text
        assert all(abs(len(one) - len(words)) <= 1 for one in NEUTRAL[name])


def test_damage_is_what_it_is_called():
    half = of(damage_probes, "cut_in_half", 1).text
    assert SKY.startswith(half)
    assert abs(len(half) - len(SKY) / 2) < 10
    words = of(damage_probes, "shuffled_words", 1).text
    assert sorted(words.split()) == sorted(SKY.split())
    shuffled = of(damage_probes, "shuffled_sentences", 1).text
    assert sorted(sentences_of(shuffled)) == sorted(sentences_of(SKY))
    repeated = of(damage_probes, "repeated_sentence", 1).text
    assert repeated.startswith("The air scatters blue light. The air scatters blue")
    assert of(damage_probes, "wrong_topic", 1).text in (BREAD, "Paris.")


def test_an_answer_to_the_same_prompt_is_no_wrong_topic():
    twice = [PROMPTS[1], PROMPTS[1].upper(), PROMPTS[0]]
    answers = [SKY, "Because of scattering, mostly.", BREAD]
    wrong = {
        probe.prompt_index: probe.text
        for probe in damage_probes(twice, answers, seed=0)
        if probe.kind == "wrong_topic"
    }
    assert wrong[0] == wrong[1] == BREAD
    alone = damage_probes([PROMPTS[0]], [BREAD], seed=0)
    assert "wrong_topic" not in {probe.kind for probe in alone}


def test_items_of_a_list_are_sentences_and_keep_their_numbers():
    assert sentences_of(BREAD)[2:4] == ["1. Mix flour and water.", "2. Let it rest for an hour."]


def test_every_text_is_scored_once():
    probes = [probe for make in MAKERS for probe in make(PROMPTS, ANSWERS, seed=0)]
    wanted = texts_to_score(probes)
    assert len(wanted) == len(set(wanted))
    assert {(p.prompt_index, t) for p in probes for t in p.texts} == set(wanted)
    assert (0, BREAD) in wanted


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4), st.integers(0, 3))
def test_any_text_at_all_gives_probes_or_none(answers, seed):
    prompts = [f"prompt {i}" for i in range(len(answers))]
    for make in MAKERS:
        for probe in make(prompts, answers, seed=seed):
            assert probe.text.strip()
            assert probe.against_text.strip()


def test_prompts_without_answers_are_refused():
    with pytest.raises(ValueError, match="per prompt"):
        empty_probes(PROMPTS, ANSWERS[:1], seed=0)


# Cheaper number formats and the order of answers.


def noisy(scores, noise, seed=0):
    return scores + noise * np.random.default_rng(seed).normal(size=len(scores))


def rounded(scores, bits):
    """To a float of so many bits behind the point, as bfloat16 (8) does."""
    exponent = np.floor(np.log2(np.abs(scores)))
    step = 2.0 ** (exponent - bits)
    return np.round(scores / step) * step


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(1).normal(0, 2, 400)


def test_four_answers_are_counted_by_hand():
    # Six pairs: (1,2) (1,3) (1,4) (2,3) (2,4) kept, (3,4) turned around.
    assert rank_agreement([1, 2, 3, 4], [1, 2, 4, 3]).value == pytest.approx(5 / 6)
    # (3,4) tied now: half a pair.
    assert rank_agreement([1, 2, 3, 4], [1, 2, 3, 3]).value == pytest.approx(5.5 / 6)
    # Pairs that the reference ties say nothing.
    assert rank_agreement([1, 1, 2], [5, 9, 7]).value == pytest.approx(0.5)


def test_it_is_kendalls_tau_without_ties_and_somers_d_with_them(scores):
    other = noisy(scores, 0.3)
    tau = kendalltau(scores, other).statistic
    assert rank_agreement(scores, other).value == pytest.approx((1 + tau) / 2)
    few, tied = np.round(scores[:80]), np.round(other[:80])
    expected = somersd(few, tied).statistic
    assert rank_agreement(few, tied).value == pytest.approx((1 + expected) / 2)


def test_the_interval_covers_the_truth():
    truth = rank_agreement(
        np.random.default_rng(0).normal(size=4000),
        noisy(np.random.default_rng(0).normal(size=4000), 0.05, seed=8),
    ).value
    covered = 0
    for seed in range(60):
        one = np.random.default_rng([seed, 3]).normal(size=200)
        found = rank_agreement(one, noisy(one, 0.05, seed))
        covered += found.low <= truth <= found.high
    assert covered >= 53


def test_the_same_and_the_reverse_are_the_ends(scores):
    same, reverse = rank_agreement(scores, 3 * scores + 1), rank_agreement(scores, -scores)
    assert (same.value, same.low, same.high) == (1, 1, 1)
    assert (reverse.value, reverse.high) == (0, 0)


def test_half_precision_is_green_in_nineteen_of_twenty():
    green = 0
    for seed in range(20):
        one = np.random.default_rng(seed).normal(0, 2, 400)
        found = precision_line(one, {"bfloat16": noisy(rounded(one, 8), 0.01, seed)})
        green += found.verdict is Verdict.GREEN
    assert green >= 19


def test_a_format_that_turns_pairs_around_is_red_and_named(scores):
    found = precision_line(
        scores, {"bfloat16": rounded(scores, 8), "int8": noisy(scores, 0.3), "int4": -scores}
    )
    assert found.verdict is Verdict.RED
    assert found.facts["failed"] == ["int8", "int4"]
    assert finding_from_json(finding_to_json(found)) == found


def test_a_format_that_is_not_served_in_does_not_count(scores):
    tried = {"bfloat16": rounded(scores, 8), "int8": noisy(scores, 0.3)}
    found = precision_line(scores, tried, served="bfloat16")
    assert found.verdict is Verdict.GREEN
    assert "Not so int8" in found.says
    assert precision_line(scores, tried, served="int8").verdict is Verdict.RED


def test_a_score_that_says_the_same_of_all_in_a_cheaper_format_is_red(scores):
    found = precision_line(scores, {"int8": np.zeros(400)})
    assert found.verdict is Verdict.RED
    assert found.figure.value == 0.5


def test_without_other_formats_answers_or_order_nothing_is_measured(scores):
    assert precision_line(scores, {}).verdict is Verdict.UNMEASURED
    assert precision_line(np.ones(100), {"int8": scores[:100]}).verdict is Verdict.UNMEASURED
    few = {"bfloat16": rounded(scores[:20], 8)}
    assert precision_line(scores[:20], few).verdict is Verdict.UNMEASURED
    assert precision_line(scores[:20], {"int8": -scores[:20]}).verdict is Verdict.RED


def test_scores_that_are_no_numbers_are_refused(scores):
    with pytest.raises(ValueError, match="no number"):
        rank_agreement([1.0, 2.0], [1.0, float("nan")])
    with pytest.raises(ValueError, match="of a length"):
        rank_agreement([1.0, 2.0], [1.0])


# A word that moves the score by itself is named; honest words are not.


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
    assert "none of 2" in found.says


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
    assert "do not go" in backwards.says
