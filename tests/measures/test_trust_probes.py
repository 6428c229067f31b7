"""Empty, flattering and damaged answers as texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measures.style import marks_of
from measures.trust.probes import (
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
    with pytest.raises(ValueError, match="one answer per prompt"):
        empty_probes(PROMPTS, ANSWERS[:1], seed=0)
