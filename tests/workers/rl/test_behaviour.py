"""Repetition and variety of answers, by hand and by what they must do."""

import pytest
import torch

from workers.behaviour import behaviour_metrics, compression, distinct, repetition, self_overlap


def batch(*answers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded with a token that also occurs in answers, so that only the mask tells them."""
    width = max(map(len, answers))
    ids = torch.tensor([a + [7] * (width - len(a)) for a in answers])
    mask = torch.tensor([[1] * len(a) + [0] * (width - len(a)) for a in answers])
    return ids, mask


def test_repetition_is_the_share_of_four_grams_that_came_before():
    # 1 2 3 4 | 2 3 4 1 | 3 4 1 2 | 4 1 2 3 | 1 2 3 4 again: one of five
    ids, mask = batch([1, 2, 3, 4, 1, 2, 3, 4], [7] * 8, [1, 2, 3, 4, 5, 6, 8, 9])
    assert repetition(ids, mask) == pytest.approx([1 / 5, 4 / 5, 0.0])


def test_an_answer_too_short_to_repeat_anything_repeats_nothing():
    ids, mask = batch([7], [7, 7, 7], [7, 7, 7, 7])
    assert repetition(ids, mask) == [0.0, 0.0, 0.0]


def test_padding_is_neither_repetition_nor_variety():
    short, long = batch([1, 2, 3, 4, 5, 6]), batch([1, 2, 3, 4, 5, 6], list(range(20, 60)))
    assert repetition(*long)[0] == repetition(*short)[0] == 0.0
    assert distinct(*batch([1, 2], [1, 2])) == pytest.approx(1 / 2)


def test_one_answer_given_to_everything_has_little_variety_and_full_overlap():
    same, varied = (
        batch(*[[1, 2, 3, 4, 5]] * 10),
        batch(*[[10 * i + j for j in range(5)] for i in range(10)]),
    )
    assert distinct(*same) == pytest.approx(4 / 40)
    assert distinct(*varied) == 1.0
    assert self_overlap(*same) == 1.0
    assert self_overlap(*varied) == 0.0
    # repetition sees neither: within each answer nothing recurs
    assert max(repetition(*same)) == max(repetition(*varied)) == 0.0


def test_overlap_counts_what_another_answer_says_too():
    ids, mask = batch([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], [50, 51, 52, 53, 54])
    assert self_overlap(ids, mask) == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


def test_what_cannot_be_measured_is_none():
    ids, mask = batch([1], [2])
    assert distinct(ids, mask) is None
    assert self_overlap(ids, mask) is None
    assert compression([]) is None


def test_templates_compress_better_than_different_texts():
    alike = ["Certainly! Here is a great answer to your question."] * 20
    other = [" ".join(f"{(i * 7919 + j * 104729) % 99991:x}" for j in range(10)) for i in range(20)]
    assert compression(alike) > 3 * compression(other)


def test_the_figures_of_a_step_are_means_over_its_answers():
    ids, mask = batch([7] * 8, [1, 2, 3, 4, 5, 6, 8, 9])
    figures = behaviour_metrics(ids, mask)
    assert figures["response/repetition"] == pytest.approx(0.4)
    assert figures["response/distinct"] == pytest.approx(8 / 14)
