"""Labels under a certified error, and the audit of them, by simulation."""

import math

import numpy as np
import pytest

from measures.certificates import audit, certify, spend
from measures.head_to_head import exact_interval, stake_path
from measures.intervals import wilson
from workers.contract.reasons import reason_words

RUNS = 1_000


def share(events: list[bool]) -> float:
    """The lower end of the simulation's interval."""
    return wilson(sum(events), len(events)).low or 0.0


@pytest.mark.parametrize("shape", ["even", "rising"])
@pytest.mark.parametrize("grid", [None, np.linspace(0.5, 1, 51)])
def test_an_error_above_the_limit_is_seldom_certified(shape: str, grid: np.ndarray | None) -> None:
    rng = np.random.default_rng(7)
    false = []
    for _ in range(RUNS):
        sure = 0.5 + rng.random(400) / 2
        # even: 10.5 % wrong wherever the threshold is; rising: (1 − t) / 2 wrong above t.
        wrong = rng.random(400) < (0.105 if shape == "even" else 1 - sure)
        found = certify(sure, wrong, error=0.1, failure=0.1, grid=grid)
        above = found.threshold is not None
        false.append(above and (shape == "even" or (1 - found.threshold) / 2 > 0.1))
    assert share(false) <= 0.1


def test_a_good_judge_gets_most_labels_certified_and_a_sorted_one_those_it_is_sure_of() -> None:
    rng = np.random.default_rng(8)
    good, some = [], []
    for _ in range(300):
        sure = 0.5 + rng.random(1_000) / 2
        good.append(certify(sure, rng.random(1_000) < 0.05, error=0.1, failure=0.1).coverage)
        some.append(certify(sure, rng.random(1_000) < 1 - sure, error=0.1, failure=0.1).coverage)
    assert np.mean(good) > 0.9
    # At most 40 % have an error of a tenth: (1 − t)/2 = 0.1 at t = 0.8.
    assert 0.05 < np.mean(some) < 0.4


def test_it_begins_where_no_error_would_do_and_takes_equal_confidences_together() -> None:
    sure = np.repeat([0.9, 0.8], [30, 30])
    found = certify(sure, np.zeros(60, dtype=bool), error=0.1, failure=0.05)
    level = 0.05 * 6 / math.pi**2
    assert found.level == pytest.approx(level)
    assert 0.9**found.least <= level < 0.9 ** (found.least - 1)
    assert (found.threshold, found.n_labelled, found.starts) == (0.8, 60, 1)
    assert found.bound == pytest.approx(1 - level ** (1 / 60))


def test_too_few_labels_or_too_many_errors_are_no_certificate() -> None:
    few = certify(np.full(20, 0.9), np.zeros(20, dtype=bool), error=0.1, failure=0.05)
    assert few.threshold is None
    assert reason_words(few.undefined).startswith("the judge labels 20 of the pairs")
    bad = certify(np.full(60, 0.9), np.arange(60) < 9, error=0.1, failure=0.05)
    assert (bad.threshold, bad.errors, bad.starts) == (None, 9, 1)
    assert reason_words(bad.undefined).startswith("9 of the 60 most confident labels are wrong")
    assert certify([], [], error=0.1, failure=0.05).threshold is None


def test_a_pair_without_a_label_is_never_labelled() -> None:
    sure = np.repeat([0.9, 0.0], [100, 100])
    found = certify(sure, sure == 0, error=0.1, failure=0.05)
    assert (found.n_labelled, found.errors, found.coverage) == (100, 0, 0.5)


def test_a_sequence_stops_at_the_first_threshold_that_fails() -> None:
    sure = np.repeat([0.9, 0.8, 0.7], [100, 20, 20])
    wrong = sure == 0.8
    found = certify(sure, wrong, error=0.2, failure=0.05)
    assert (found.threshold, found.starts) == (0.9, 1)
    fine = certify(sure[~wrong], wrong[~wrong], error=0.2, failure=0.05)
    assert (fine.threshold, fine.coverage) == (0.7, 1.0)


def test_an_early_error_does_not_cost_the_labels_that_many_more_would_certify() -> None:
    sure = np.linspace(1, 0.5, 1_000)
    wrong = np.arange(1_000) % 25 == 3  # 4 % throughout, the fourth label among them
    found = certify(sure, wrong, error=0.1, failure=0.05)
    assert found.starts > 2
    assert found.coverage == 1
    assert found.level == pytest.approx(0.05 * 6 / math.pi**2 / found.starts)


def test_looks_spend_the_failure_and_never_all_of_it() -> None:
    spent = [spend(look, 0.1) for look in (1, 2, 50)]
    assert spent[0].level == pytest.approx(0.0608, abs=1e-4)
    assert [one.spent + one.left for one in spent] == pytest.approx([0.1] * 3)
    assert spent[0].left > spent[1].left > spent[2].left > 0
    assert certify([0.9], [False], error=0.1, failure=0.1, look=2).level == spent[1].level
    with pytest.raises(ValueError, match="looks count from 1"):
        spend(0, 0.1)


def test_an_audit_of_labels_as_good_as_promised_seldom_alarms_however_often_one_looks() -> None:
    rng = np.random.default_rng(9)
    streams = (rng.random((RUNS, 500)) < 0.05).astype(float)
    false = [audit(row, error=0.05, failure=0.05).alarm_at is not None for row in streams]
    assert np.mean(false) <= 0.05


def test_a_drift_is_noticed_and_the_alarm_stays() -> None:
    rng = np.random.default_rng(10)
    at = []
    for _ in range(200):
        stream = np.concatenate([rng.random(100) < 0.025, rng.random(900) < 0.15]).astype(float)
        found = audit(stream, error=0.05, failure=0.05)
        at.append(math.inf if found.alarm_at is None else found.alarm_at)
    assert np.mean(np.array(at) <= 100) <= 0.05
    assert np.median(at) < 300
    # Good again for long: the interval holds the limit, the alarm is not taken back.
    ended = np.concatenate([np.ones(10), np.zeros(2_000)])
    found = audit(ended, error=0.05, failure=0.05)
    assert found.low < 0.05
    assert found.alarm_at == audit(ended[:10], error=0.05, failure=0.05).alarm_at


def test_the_alarm_is_at_the_first_interval_that_lies_above_the_limit() -> None:
    rng = np.random.default_rng(11)
    stream = rng.choice([0.0, 0.5, 1.0], p=[0.8, 0.1, 0.1], size=80)
    found = audit(stream, error=0.05, failure=0.1)
    lows = [exact_interval(stream[: n + 1], 0.1)[0] for n in range(80)]
    assert found.alarm_at == 1 + int(np.argmax(np.array(lows) > 0.05))
    assert (found.low, found.wrong) == (lows[-1], stream.sum())
    path = stake_path(stream, 0.3)
    inside = [low < 0.3 < exact_interval(stream[: n + 1], 0.1)[1] for n, low in enumerate(lows)]
    assert inside == (path < -math.log(0.1)).tolist()


def test_an_audit_of_nothing_says_nothing() -> None:
    found = audit([], error=0.05, failure=0.05)
    assert (found.n, found.low, found.high, found.alarm_at) == (0, 0.0, 1.0, None)


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_limits_that_are_none_are_refused(error: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        certify([0.9], [False], error=error, failure=0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        audit([0.0], error=error, failure=0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        audit([2.0], error=0.1, failure=0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        certify([2.0], [False], error=0.1, failure=0.05)
    with pytest.raises(ValueError, match="equally long"):
        certify([0.9], [], error=0.1, failure=0.05)
    with pytest.raises(ValueError, match="mean must lie"):
        stake_path(np.array([1.0]), error)
