"""Answers beside demonstrations: other habits are told, chance is not."""

import numpy as np
import pytest

from measures.imitation import (
    SHARES,
    Trait,
    Traits,
    compare,
    paired_shares,
    ratio_of_means,
    traits_of,
)

PROMPTS = 64


def side(
    rng: np.random.Generator, wants: np.ndarray, *, longer: float = 1.0, refusals: float = 0.05
) -> list[Traits]:
    """Answers to prompts that ask for `wants` tokens each, cut at 200; three in ten have a list."""
    lengths = np.minimum(200, np.maximum(1, wants * longer * rng.lognormal(0, 0.4, PROMPTS)))
    lists, refuses = rng.random((2, PROMPTS))
    return [
        Traits(
            int(tokens),
            frozenset(
                name
                for name, has in (
                    ("ended", tokens < 200),
                    ("list", lists[i] < 0.3),
                    ("refusal", refuses[i] < refusals),
                )
                if has
            ),
        )
        for i, tokens in enumerate(lengths)
    ]


def world(seed: int, **answers: float) -> list[Trait]:
    rng = np.random.default_rng(seed)
    wants = rng.lognormal(4.0, 0.5, PROMPTS)
    return compare(side(rng, wants), side(rng, wants, **answers))


def departing(traits: list[Trait]) -> set[str]:
    return {trait.name for trait in traits if trait.departs}


def test_a_faithful_model_is_never_told_to_depart_and_a_verbose_one_always() -> None:
    for seed in range(20):
        assert departing(world(seed)) == set(), seed
        assert "length" in departing(world(seed, longer=1.8)), seed


def test_a_model_that_answers_in_half_as_much_departs_too() -> None:
    assert all("length" in departing(world(seed, longer=0.5)) for seed in range(20))


def test_a_model_that_refuses_two_prompts_of_five_departs_by_refusals_alone() -> None:
    found = [departing(world(seed, refusals=0.4)) for seed in range(20)]
    assert all(names == {"refusal"} for names in found)


def test_an_answer_that_never_ends_counts_as_long_and_unended_not_as_missing() -> None:
    demonstrations = [Traits(50, frozenset({"ended"}))] * 20
    traits = {t.name: t for t in compare(demonstrations, [Traits(100, frozenset())] * 20)}
    assert traits["length"].difference.value == pytest.approx(2.0)
    assert traits["ended"].difference.value == pytest.approx(-1.0)
    assert departing(list(traits.values())) == {"length", "ended"}
    assert "2.00 times as long" in traits["length"].words


def test_the_difference_of_paired_shares_is_agresti_and_mins_by_hand() -> None:
    first = [True] * 5 + [False] + [True] * 2 + [False] * 2
    second = [False] * 5 + [True] + [True] * 2 + [False] * 2
    found = paired_shares(first, second)  # b = 5, c = 1, n = 10
    half = 1.959964 * (7 - 16 / 12) ** 0.5 / 12
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((4 / 12 - half, 4 / 12 + half))
    alike = paired_shares([True] * 30, [True] * 30)
    assert alike.low < 0 < alike.high  # agreement on 30 rows is not certainty


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held = np.zeros(2)
    for _ in range(400):
        shared = rng.lognormal(3, 0.5, 40)
        ratio = ratio_of_means(*(shared * rng.lognormal(0, 0.3, (2, 40))))
        share = paired_shares(rng.random(40) < 0.5, rng.random(40) < 0.3)
        held += [ratio.low < 1.0 < ratio.high, share.low < 0.2 < share.high]
    assert all(0.92 <= covered <= 0.985 for covered in held / 400), held / 400


def test_what_prompts_share_makes_the_interval_of_a_ratio_shorter() -> None:
    rng = np.random.default_rng(1)
    wants = rng.lognormal(3, 1.0, 60)
    one, other = wants * rng.lognormal(0, 0.1, 60), wants * rng.lognormal(0, 0.1, 60)
    paired, shuffled = ratio_of_means(one, other), ratio_of_means(one, rng.permutation(other))
    assert paired.high - paired.low < 0.3 * (shuffled.high - shuffled.low)


def test_too_few_rows_give_a_value_without_an_interval_and_never_depart() -> None:
    traits = compare([Traits(10, frozenset())] * 3, [Traits(90, frozenset({"refusal"}))] * 3)
    assert departing(traits) == set()
    assert traits[0].difference.value == pytest.approx(9.0)
    assert "too few rows: 3" in str(traits[0].difference.no_interval)


def test_empty_answers_leave_the_ratio_undefined_and_say_why() -> None:
    found = ratio_of_means([0.0] * 20, [5.0] * 20)
    assert (found.value, found.undefined) == (None, "a mean length is 0")
    with pytest.raises(ValueError, match="one answer per demonstration"):
        compare([Traits(1, frozenset())], [])


@pytest.mark.parametrize(
    ("text", "ended", "trait"),
    [
        ("- one\n- two", True, "list"),
        ("## Title\ntext", True, "heading"),
        ("```\nx = 1\n```", True, "code"),
        ("I'm sorry, but I can't help with that.", True, "refusal"),
        ('{"a": [1, 2]}', True, "json"),
        ('{"a": [1,', False, "json"),
    ],
)
def test_traits_are_read_from_the_text(text: str, ended: bool, trait: str) -> None:
    marks = traits_of(text, tokens=5, ended=ended).marks
    assert trait in marks
    assert ("ended" in marks) is ended
    assert marks <= SHARES.keys()


def test_a_bracket_that_is_no_json_is_none() -> None:
    assert "json" not in traits_of("[laughs] indeed", tokens=3, ended=True).marks
    assert "json" not in traits_of("{never} closed", tokens=3, ended=False).marks
