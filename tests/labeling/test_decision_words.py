"""The sentence under a decision, by votes and by a model of the voters."""

import pytest

from apps.labeling.services.decision_words import decision_said
from measures.voting import CHOICES, PosteriorRule, Rule, decide, decide_by_posterior

CHOICE = dict(zip("abtx", CHOICES, strict=True))


@pytest.mark.parametrize(
    ("cast", "possible", "sentence"),
    [
        (
            "aaab",
            None,
            "A has 3 of 4 votes (75%); the rule asks for 3 votes, 3 agreeing and a share of 0.6.",
        ),
        (
            "aabb",
            None,
            "A and B have 2 of 4 votes each, and a vote tie is not broken at random so far; the "
            "rule asks for 3 votes, 3 agreeing and a share of 0.6; 1 more vote can still come.",
        ),
        (
            "xxa",
            3,
            "both bad has 2 of 3 votes (67%); the rule asks for 3 votes, 3 agreeing and a share "
            "of 0.6; all votes are in.",
        ),
        (
            "abtx",
            None,
            "A, B, tie and both bad have 1 of 4 votes each, and a vote tie is not broken at random;"
            " the rule asks for 3 votes, 3 agreeing and a share of 0.6, which 1 more vote could no "
            "longer meet.",
        ),
        (
            "",
            5,
            "No votes so far; the rule asks for 3 votes, 3 agreeing and a share of 0.6; "
            "5 more votes can still come.",
        ),
    ],
)
def test_what_votes_decide_is_a_sentence_a_person_can_check(
    cast: str, possible: int | None, sentence: str
) -> None:
    rule = Rule()
    decision = decide([CHOICE[letter] for letter in cast], rule, votes_possible=possible)
    assert decision_said(decision, rule) == sentence


@pytest.mark.parametrize(
    ("cast", "posteriors", "sentence"),
    [
        (
            "aabbb",
            (0.27, 0.73, 0.0, 0.0),
            "B is right with probability 73.0 %, with 3 of 5 votes; accepted from 90% on, after 3 "
            "votes; all votes are in.",
        ),
        (
            "a",
            (0.9995, 0.0005, 0.0, 0.0),
            "A is right with probability over 99.9 %, with 1 of 1 vote; accepted from 90% on, "
            "after 3 votes; more votes can still come.",
        ),
        (
            "ab",
            (0.5, 0.5, 0.0, 0.0),
            "No choice is more probable than the others after 2 votes; accepted from 90% on, after "
            "3 votes; more votes can still come.",
        ),
        (
            "aaa",
            (0.95, 0.05, 0.0, 0.0),
            "A is right with probability 95.0 %, with 3 of 3 votes; accepted from 90% on, after 3 "
            "votes.",
        ),
        (
            "",
            (0.5, 0.5, 0.0, 0.0),
            "No votes; accepted from 90% on, after 3 votes; more votes can still come.",
        ),
    ],
)
def test_what_a_model_decides_is_told_with_its_probability(
    cast: str, posteriors: tuple[float, ...], sentence: str
) -> None:
    rule = PosteriorRule(least_posterior=0.9, least_votes=3, max_votes=5)
    counts = {choice: cast.count(letter) for letter, choice in CHOICE.items()}
    decision = decide_by_posterior(counts, posteriors, rule)
    assert decision_said(decision, rule) == sentence
