"""Prompts and answers whose words are drawn by Zipf's law, for projects that are searched."""

import json
import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from django.db.backends.utils import CursorWrapper

WORDS = 60_000
MODELS = ["gpt-x", "llama-y", "mistral-z", "our-sft", "our-ppo", "baseline"]
TOPICS = 40
_SYLLABLES = [a + b for a in (*"bcdfghklmnprstvw", "st", "tr") for b in "aeiou"]
_STAMP = "2026-01-01"


def vocabulary(draw: random.Random) -> list[str]:
    """Short words first, as languages have it."""
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found.setdefault("".join(draw.choices(_SYLLABLES, k=2 + int(draw.random() * 4))))
    return sorted(found, key=lambda word: len(word) + 1.5 * draw.gauss(0, 1))


def texts(draw: random.Random, words: list[str], mean: int) -> Iterator[str]:
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
    pool = [words[bisect(weights, draw.random() * weights[-1])] for _ in range(2_000_000)]
    while True:
        length, start = draw.randint(mean // 2, mean * 3 // 2), draw.randrange(len(pool) - 2 * mean)
        yield " ".join(pool[start : start + length])


def prompts_copy(cursor: CursorWrapper, project: str, n: int, answers: int) -> list[str]:
    """n prompts of 16 words with so many answers of 60 words each; the words by rank."""
    draw = random.Random(1)
    words = vocabulary(draw)
    asked, said = texts(draw, words, 16), texts(draw, words, 60)
    first = _free_id(cursor, "labeling_prompt", n)
    with cursor.copy(
        "copy labeling_prompt (id, project_id, messages, text_hash, group_key, topic, language,"
        " source, licence, metadata, created_at, updated_at) from stdin"
    ) as copy:
        for k in range(n):
            row = (first + k, project, _turn("user", next(asked)), k, k, f"topic {k % TOPICS}")
            copy.write_row((*row, "en", "", "", "{}", _STAMP, _STAMP))
    first_answer = _free_id(cursor, "labeling_response", n * answers)
    with cursor.copy(
        "copy labeling_response (id, prompt_id, messages, text_hash, origin, origin_ref,"
        " metadata, created_at, updated_at) from stdin"
    ) as copy:
        for k in range(n * answers):
            row = (first_answer + k, first + k // answers, _turn("assistant", next(said)), k)
            copy.write_row((*row, "model", draw.choice(MODELS), "{}", _STAMP, _STAMP))
    return words


def _turn(role: str, text: str) -> str:
    return json.dumps([{"role": role, "content": text}])


def _free_id(cursor: CursorWrapper, table: str, n: int) -> int:
    """The first of n ids that are taken from the table's sequence."""
    values: dict[str, Any] = {"table": table, "n": n}
    cursor.execute(
        "select setval(s, nextval(s) + %(n)s) - %(n)s from"
        " pg_get_serial_sequence(%(table)s, 'id') s",
        values,
    )
    return int(cursor.fetchone()[0])
