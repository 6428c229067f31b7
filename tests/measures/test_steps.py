"""Steps of trajectories: first errors, their F1, intervals that know which steps hang together."""

import math

import pytest

from measures.steps import first_error, predicted_error, step_report

SURE = 4.0


def logits(*right: bool) -> list[float]:
    return [SURE if one else -SURE for one in right]


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ([True, True], -1),
        ([True, False, True], 1),
        ([False], 0),
        ([True, None, False], None),
        ([True, False, None], 1),
        ([True, None], None),
        ([], -1),
    ],
)
def test_the_first_error_is_known_where_all_steps_before_it_were_marked(
    labels: list[bool | None], place: int | None
) -> None:
    assert first_error(labels) == place


def test_the_first_step_that_is_held_to_be_wrong_counts() -> None:
    assert predicted_error([0.9, 0.4, 0.2]) == 1
    assert predicted_error([0.9, 0.5]) == -1


def test_f1_is_the_harmonic_mean_of_errors_found_and_right_ones_passed() -> None:
    """Two wrong trajectories of which one error is found, four right ones of which three pass."""
    found = step_report(
        [
            logits(True, False),
            logits(True, True),
            *[logits(True, True)] * 3,
            logits(False, True),
        ],
        [[True, False], [True, False], *[[True, True]] * 4],
        replicates=200,
    )
    assert found.located.value == 0.5
    assert found.passed.value == 0.75
    assert found.f1.value == pytest.approx(2 * 0.5 * 0.75 / 1.25)
    assert found.accuracy.value == pytest.approx(10 / 12)
    assert found.majority == pytest.approx(10 / 12)


def test_unmarked_steps_count_for_nothing() -> None:
    found = step_report([logits(True, False)], [[True, None]], replicates=200)
    assert (found.steps, found.accuracy.value) == (1, 1.0)
    assert found.f1.value is None
    assert found.explained is None
    assert found.ece is None


def test_who_knows_the_frequencies_alone_explains_nothing() -> None:
    share = math.log(3)  # three of four are right
    labels = [[True, True, True, False]] * 12
    assert step_report([[share] * 4] * 12, labels, replicates=200).explained == pytest.approx(0.0)
    assert step_report([[0.0] * 4] * 12, labels, replicates=200).explained < 0


def test_an_interval_over_trajectories_is_wider_than_one_over_steps() -> None:
    """Every trajectory is right or wrong as a whole: ten steps say no more than one."""
    right, wrong = [True] * 10, [False] * 10
    found = step_report(
        [logits(*right)] * 20 + [logits(*wrong)] * 20, [right] * 40, replicates=2000
    )
    assert found.accuracy.high - found.accuracy.low > 0.25  # of 400 steps alone: 0.1
    assert found.accuracy.n_clusters == 40
