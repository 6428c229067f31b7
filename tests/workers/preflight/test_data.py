"""Rows, lengths and overlaps: each planted fault is found, clean rows are not."""

from dataclasses import replace

import pytest

from workers.data.snapshot import Demonstration, Preference
from workers.preflight.data import (
    demonstration_overlap,
    demonstration_rows,
    evaluation_overlap,
    preference_rows,
    prompt_rows,
    too_long,
)

PROMPTS = [f"How many legs have {n} spiders in a garden of size {n * n}?" for n in range(40)]
PAIRS = [
    Preference([{"role": "user", "content": text}], f"{8 * n} legs", f"about {n} or so")
    for n, text in enumerate(PROMPTS)
]


def test_clean_rows_pass() -> None:
    assert prompt_rows(PROMPTS).level == "ok"
    assert preference_rows(PAIRS).level == "ok"
    shown = [Demonstration(row.prompt, row.chosen) for row in PAIRS]
    assert demonstration_rows(shown).level == "ok"


def test_repeated_prompts_are_counted_in_their_normal_form() -> None:
    found = prompt_rows([*PROMPTS, PROMPTS[0].upper() + " ", PROMPTS[1]])
    assert (found.level, found.figures["repeated"]) == ("warn", 2)


def test_empty_answers_are_told_and_too_many_block() -> None:
    some = [replace(row, chosen=" ") if n == 3 else row for n, row in enumerate(PAIRS)]
    assert (preference_rows(some).level, preference_rows(some).figures["empty"]) == ("warn", 1)
    most = [replace(row, chosen="") if n > 9 else row for n, row in enumerate(PAIRS)]
    assert preference_rows(most).level == "block"
    assert demonstration_rows([]).level == "block"


def test_the_same_answer_twice_is_no_comparison() -> None:
    found = preference_rows([*PAIRS, replace(PAIRS[0], chosen="Yes", rejected="yes ")])
    assert (found.level, found.figures["alike"]) == ("warn", 1)


def test_a_pair_and_its_mirror_are_the_same_pair() -> None:
    mirrored = replace(PAIRS[0], chosen=PAIRS[0].rejected, rejected=PAIRS[0].chosen)
    assert preference_rows([*PAIRS, mirrored]).figures["repeated"] == 1


def test_what_is_left_out_and_what_is_cut_are_told_apart() -> None:
    fine = too_long("prompt", 100, 0, limit="max_prompt_length", tokens=512)
    assert (fine.level, fine.message) == (
        "ok",
        "All 100 prompts fit max_prompt_length (512 tokens).",
    )
    short = too_long("prompt", 60, 40, limit="max_prompt_length", tokens=16)
    assert short.level == "warn"
    assert "40 of 100 prompts (40.0 %)" in short.message
    assert "left out whole" in short.message
    cut = too_long("demonstration", 100, 0, limit="max_length", tokens=64, cut=5)
    assert cut.level == "warn"
    assert "5 are cut at max_length" in cut.message


def test_answers_that_run_into_their_limit_are_told() -> None:
    limits = {"limit": "max_prompt_length", "tokens": 16, "answer_limit": ("max_new_tokens", 8)}
    assert too_long("prompt", 10, 0, unfinished=0.9, **limits).level == "warn"
    assert too_long("prompt", 10, 0, unfinished=0.1, **limits).level == "ok"


def test_an_evaluation_prompt_that_is_trained_on_is_found() -> None:
    held_out = [text.replace("spiders", "herons") for text in PROMPTS[:10]]
    assert evaluation_overlap(PROMPTS, held_out).level == "ok"
    found = evaluation_overlap(PROMPTS, [*held_out, PROMPTS[7] + " "])
    assert (found.level, found.figures["equal"], found.figures["n"]) == ("warn", 1, 11)


def test_a_nearly_equal_prompt_is_found_too() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    found = evaluation_overlap([*PROMPTS, long], [long.replace("word30", "another")])
    assert (found.figures["equal"], found.figures["near"]) == (0, 1)


def test_a_snapshot_that_holds_nothing_out_is_told() -> None:
    found = evaluation_overlap(PROMPTS, PROMPTS[:5], same_file=True)
    assert found.level == "warn"
    assert "no evaluation file" in found.message


@pytest.mark.parametrize(("shared", "level"), [(5, "ok"), (20, "warn")])
def test_prompts_the_policy_was_shown_answers_to_are_counted(shared: int, level: str) -> None:
    found = demonstration_overlap(PROMPTS, [*PROMPTS[:shared], "Who painted this picture here?"])
    assert (found.level, found.figures["equal"]) == (level, shared)
    assert demonstration_overlap(PROMPTS, []).level == "unknown"
