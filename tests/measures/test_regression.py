"""What may be said of checks passed before and after."""

import numpy as np
import pytest

from measures.regression import Standing, compared


def test_a_drop_is_worse_and_a_small_one_is_not() -> None:
    rng = np.random.default_rng(0)
    before = (rng.random(400) < 0.8).astype(float)
    broken = before.copy()
    broken[:40] = 0
    found = compared(before, broken, clusters=np.arange(400))
    assert found.standing == Standing.WORSE
    assert found.lost == int(before[:40].sum())
    assert found.won == 0
    one = before.copy()
    one[np.flatnonzero(before)[0]] = 0
    assert compared(before, one, clusters=np.arange(400)).standing == Standing.NOT_WORSE


def test_nothing_lost_is_shown_by_how_many_there_are() -> None:
    for n, standing in ((121, Standing.UNDECIDED), (122, Standing.NOT_WORSE)):
        same = np.arange(n) % 2.0
        found = compared(same, same, clusters=np.arange(n))
        assert found.standing == standing, n
        assert found.lowest == pytest.approx(0.025 ** (1 / n) - 1)
    together = compared(np.ones(200), np.ones(200), clusters=np.arange(200) % 20)
    assert together.standing == Standing.UNDECIDED  # twenty groups, and not two hundred prompts


def test_few_checks_say_neither() -> None:
    before, after = np.ones(30), np.ones(30)
    after[:2] = 0
    assert compared(before, after, clusters=np.arange(30)).standing == Standing.UNDECIDED


def test_a_margin_is_a_share() -> None:
    with pytest.raises(ValueError, match="margin"):
        compared([1.0], [1.0], clusters=[0], margin=0.0)


def test_a_model_that_became_worse_by_the_margin_is_seldom_let_through() -> None:
    rng = np.random.default_rng(5)
    let_through = 0
    for _ in range(300):
        before = (rng.random(300) < 0.8).astype(float)
        lost, won = rng.random(300) < 0.08, rng.random(300) < 0.17
        after = np.where(before == 1, ~lost, won).astype(float)  # 3 points fewer on average
        found = compared(before, after, clusters=np.arange(300), replicates=400)
        let_through += found.standing == Standing.NOT_WORSE
    assert let_through / 300 <= 0.06  # 2.5 % asked, and the spread of 300
