"""Marks of style: what counts as one, and what only looks like it."""

import pytest

from measures.style import is_degenerate, marks_of


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Steps:\n1. Boil water\n2. Wait", "list"),
        ("Some points:\n- one\n- two", "list"),
        ("## Summary\nIt works.", "heading"),
        ("Use **care** here.", "bold"),
        ("Run `make test` first.", "code"),
        ("```python\nprint(1)\n```", "code"),
        ("| a | b |\n|---|---|", "table"),
        ("See [the manual](https://example.org).", "link"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("I cannot provide medical advice.", "refusal"),
        ("As an AI language model, I have no opinions.", "refusal"),
        ("I am unable to assist with this.", "refusal"),
        ("Thank you for asking.", "polite"),
        ("Please restart it.", "polite"),
        ("What a day!", "exclaims"),
        ("Which version do you use?", "asks_back"),
    ],
)
def test_a_mark_is_found(text: str, mark: str):
    assert mark in marks_of(text)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("I cannot stress enough how well it works.", "refusal"),
        ("I can't help but smile.", "refusal"),
        ("I cannot recommend it highly enough.", "refusal"),
        ("I'm sorry to hear that.", "refusal"),
        ("3.5 litres are enough", "list"),
        ("well-known - and rightly so", "list"),
        ("2 * 3 * 4 is 24", "bold"),
        ("issue #12 is fixed", "heading"),
        ("The pleased crowd left.", "polite"),
        ("Why? Because it is cheap.", "asks_back"),
    ],
)
def test_what_only_looks_like_a_mark_is_none(text: str, mark: str):
    assert mark not in marks_of(text)


def test_any_markup_counts_as_markdown_and_plain_text_has_no_mark():
    assert "markdown" in marks_of("a **b** c")
    assert marks_of("Plain words, and nothing else.") == frozenset()


def test_an_empty_a_tiny_and_an_endlessly_repeating_answer_are_degenerate():
    assert is_degenerate("")
    assert is_degenerate("Yes.")
    assert is_degenerate("good " * 40)
    assert not is_degenerate("It works because the seal is new and the pump is not.")
