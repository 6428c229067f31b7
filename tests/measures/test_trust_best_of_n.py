"""Best of n: the estimator, the fit, and where over-optimisation begins."""

import math
from itertools import combinations

import numpy as np
import pytest

from measures.trust.best_of_n import best_of, best_of_n, fit_peak, grid, kl_of, normal_scores
from measures.trust.findings import Verdict, finding_from_json, finding_to_json

PLANNED = 10.0


def draws(seed, kind, prompts=50, n=128):
    """(proxy, judge) of answers whose worth is standard normal within each prompt."""
    rng = np.random.default_rng(seed)
    gold = rng.normal(size=(prompts, n)) + rng.normal(size=(prompts, 1))
    noise = {
        "perfect": 0.0 * gold,
        "light": 0.7 * rng.normal(size=gold.shape),
        "heavy": 0.1 * rng.standard_cauchy(size=gold.shape),
        "hacked": 6.0 * (rng.random(gold.shape) < 0.02),
    }[kind]
    judge = gold - 2 * (noise > 5) if kind == "hacked" else gold
    return gold + noise, judge


# --- the estimator ---


def test_the_estimator_is_the_mean_over_all_subsets():
    rng = np.random.default_rng(0)
    chooser, values = rng.normal(size=(2, 6)), rng.normal(size=(2, 6))
    found = best_of(chooser, values, [1, 2, 3, 6])
    for row in range(2):
        for column, n in enumerate([1, 2, 3, 6]):
            subsets = [list(taken) for taken in combinations(range(6), n)]
            best = [values[row][taken][np.argmax(chooser[row][taken])] for taken in subsets]
            assert found[row, column] == pytest.approx(np.mean(best))


def test_equal_choosers_share_the_mean_of_their_values():
    assert best_of([[1.0, 1.0, 0.0]], [[4.0, 8.0, 0.0]], [3])[0, 0] == pytest.approx(6)
    assert best_of([[1.0, 1.0, 0.0]], [[4.0, 8.0, 0.0]], [1])[0, 0] == pytest.approx(4)


def test_the_best_of_many_does_not_overflow():
    found = best_of(np.arange(1024.0)[None], np.arange(1024.0)[None], [1, 256, 512])
    # The expected maximum of n of N numbers 0 … N − 1 is n (N + 1)/(n + 1) − 1.
    assert found[0] == pytest.approx([n * 1025 / (n + 1) - 1 for n in (1, 256, 512)])


def test_the_distance_is_that_of_the_formula_and_the_grid_stops_at_half():
    assert kl_of([1, 2, 256]) == pytest.approx([0, math.log(2) - 0.5, 4.549], abs=1e-3)
    assert grid(64).tolist() == [1, 2, 4, 8, 16, 32]
    assert grid(1024).tolist()[-1] == 256
    assert grid(1).tolist() == [1]


def test_normal_scores_forget_the_scale_and_keep_the_order():
    rows = np.random.default_rng(0).normal(size=(3, 50))
    assert normal_scores(np.exp(3 * rows)) == pytest.approx(normal_scores(rows))
    assert (normal_scores(np.ones((1, 5))) == 0).all()
    assert normal_scores(rows).mean(axis=1) == pytest.approx([0, 0, 0], abs=1e-12)


def test_a_planted_curve_gives_its_coefficients_back():
    sizes = grid(512)
    d = np.sqrt(kl_of(sizes))
    rng = np.random.default_rng(0)
    gains = d * (1.2 - 0.4 * d) + 0.02 * rng.normal(size=(40, len(sizes))) * d
    fit = fit_peak(gains, sizes)
    assert (fit.alpha, fit.beta) == pytest.approx((1.2, 0.4), abs=0.02)
    assert fit.peak_kl == pytest.approx((1.2 / 0.8) ** 2, rel=0.05)
    assert fit.low < 2.25 < fit.high


def test_a_curve_that_falls_from_the_start_peaks_at_nothing_and_a_straight_one_never():
    sizes = grid(64)
    d = np.sqrt(kl_of(sizes))
    assert fit_peak(np.tile(-d, (20, 1)), sizes).peak_kl == 0
    assert fit_peak(np.tile(d + 0.1 * d**2, (20, 1)), sizes).peak_kl == math.inf


# --- the line ---


@pytest.mark.parametrize("kind", ["perfect", "light"])
def test_a_proxy_with_light_errors_has_no_peak_in_nineteen_of_twenty(kind):
    found = [best_of_n(*draws(seed, kind), planned_kl=PLANNED) for seed in range(20)]
    green = sum(one.verdict is Verdict.GREEN for one in found)
    assert green >= 19, [one.says for one in found if one.verdict is not Verdict.GREEN]


@pytest.mark.parametrize("kind", ["heavy", "hacked"])
def test_a_proxy_that_breaks_in_its_tail_peaks_near_the_truth(kind):
    """The truth is read off a hundred thousand best-of-n choices, without any fit."""
    proxy, gold = draws(99, kind, prompts=20_000, n=128)
    gold = gold - gold.mean(axis=1, keepdims=True)
    sizes = 2 ** np.arange(8)
    rows = np.arange(len(proxy))
    curve = [gold[rows, proxy[:, :n].argmax(axis=1)].mean() for n in sizes]
    true = float(kl_of(sizes[int(np.argmax(curve))]))
    for seed in range(5):
        found = best_of_n(*draws(seed, kind), planned_kl=PLANNED)
        assert found.verdict is Verdict.RED, found.says
        assert true / 2 <= found.facts["peak_kl"] <= 2 * true, (true, found.says)


def test_what_is_planned_decides():
    proxy, judge = draws(0, "heavy")
    assert best_of_n(proxy, judge, planned_kl=PLANNED).verdict is Verdict.RED
    assert best_of_n(proxy, judge, planned_kl=0.5).verdict is Verdict.GREEN


@pytest.mark.parametrize("seed", range(5))
def test_a_proxy_that_knows_nothing_does_not_raise_the_judge(seed):
    _, judge = draws(seed, "perfect")
    proxy = np.random.default_rng([seed, 9]).normal(size=judge.shape)
    found = best_of_n(proxy, judge, planned_kl=PLANNED)
    assert found.verdict is Verdict.RED
    assert "does not raise" in found.says


def test_a_judge_that_saturates_is_not_taken_for_over_optimisation():
    proxy, judge = draws(1, "perfect")
    squeezed = 1 / (1 + np.exp(-4 * judge))
    assert best_of_n(proxy, squeezed, planned_kl=PLANNED).verdict is Verdict.GREEN


def test_without_a_judge_or_with_few_prompts_or_answers_it_is_not_measured():
    proxy, judge = draws(2, "perfect")
    alone = best_of_n(proxy, None, planned_kl=PLANNED)
    assert alone.verdict is Verdict.UNMEASURED
    assert "judge" in alone.says
    for rows, columns in ((19, 128), (50, 7), (50, 30)):
        few = best_of_n(proxy[:rows, :columns], judge[:rows, :columns], planned_kl=PLANNED)
        assert few.verdict is Verdict.UNMEASURED, few.says


def test_few_answers_are_enough_for_a_plain_fault():
    proxy, judge = draws(3, "hacked", prompts=200, n=20)
    assert best_of_n(proxy, judge, planned_kl=PLANNED).verdict is Verdict.RED


def test_the_curve_says_what_is_measured_and_what_is_not():
    found = best_of_n(*draws(4, "perfect"), planned_kl=PLANNED)
    assert "Beyond 3.2 nats the curve is extrapolation." in found.says
    curve = found.evidence[0]
    assert curve.series[0].y[0] == 0
    assert curve.series[0].y == pytest.approx(curve.series[2].y)  # a perfect proxy is the ideal
    assert "4.6 nats" in curve.note
    assert finding_from_json(finding_to_json(found)) == found


def test_scores_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="prompts × draws"):
        best_of_n(np.zeros((30, 40)), np.zeros((30, 41)), planned_kl=1)
    proxy, judge = draws(5, "perfect")
    proxy[0, 0] = float("nan")
    with pytest.raises(ValueError, match="no number"):
        best_of_n(proxy, judge, planned_kl=1)
