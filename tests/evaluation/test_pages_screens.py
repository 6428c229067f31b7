"""How numbers, axes and verdicts are put into words and drawings, without a database."""

import math

import pytest

from apps.common.report.axes import Axis, estimate, headline, short, words
from apps.common.report.blocks import parts, text_view
from apps.common.report.curves import curve_view
from apps.common.report.histograms import histogram_view
from apps.evaluation.lines import LINES
from apps.evaluation.screens.page import (
    VERDICT_WORDS,
    beside_accuracy,
    ceiling_says,
    compare,
    group_views,
    open_lines,
    turned_red,
    verdict_sentence,
)
from apps.evaluation.selectors.ceiling import HumanCeiling, LabelCeiling
from measures.blocks import Curve, Example, Histogram, Intervals, Series
from measures.estimate import Interval
from measures.trust.findings import Verdict, unmeasured
from tests.evaluation.assessed import all_green, interval, red, with_evidence


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.7314, "share", "73.1 %"),
        (-0.02, "share", "−2.0 %"),
        (1204, "count", "1,204"),
        (0.0, "number", "0.000"),
        (None, "share", "—"),
        (math.nan, "number", "not a number"),
        ("indeed", "number", "indeed"),
        (True, "share", "True"),
    ],
)
def test_numbers_are_said_with_their_unit(value, unit, said):
    assert words(value, unit) == said


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "1"), (1024.0, "1,024"), (-0.5, "−0.5"), (0.22471, "0.225")]
)
def test_places_on_an_axis_are_said_briefly(value, said):
    assert short(value) == said


def test_a_value_and_its_bounds_have_the_same_decimals():
    found = Interval(value=0.0801, low=-0.11149, high=0.2637, n=40)
    assert estimate(found, "number") == ("0.080", "−0.111 … 0.264")
    assert estimate(found, "share") == ("8.0 %", "−11.1 % … 26.4 %")
    assert headline(interval(0.731)) == "73.1 % ± 3.0, n = 612"
    bare = Interval(value=0.5, low=None, high=None, n=3, no_interval="too few")
    assert estimate(bare) == ("50.0 %", "too few")


def test_an_axis_has_round_ticks_that_hold_all_values_in_order():
    for values in ([0.52, 0.81], [-3, 2.2], [1000, 1001], [0, 0], [5], [], [1e-7, 3e-7]):
        axis = Axis(values, 0, 100)
        at = [tick.at for tick in axis.ticks]
        assert at == sorted(at)
        assert (at[0], at[-1]) == (0, 100)
        assert 2 <= len(at) <= 12
        assert len({tick.label for tick in axis.ticks}) == len(at)
        assert all(0 <= axis.at(value) <= 100 for value in values)


def test_a_logarithmic_axis_doubles_in_equal_steps():
    axis = Axis([1, 32], 0, 100, log=True)
    assert [tick.label for tick in axis.ticks] == ["1", "2", "4", "8", "16", "32"]
    assert [tick.at for tick in axis.ticks] == [0, 20, 40, 60, 80, 100]
    assert axis.at(0) is None
    assert Axis([0, 8], 0, 100, log=True).log is False  # zero has no logarithm


def test_bars_are_as_high_as_their_shares_and_groups_share_one_scale():
    block = Histogram(
        title="T", edges=(0.0, 1.0, 2.0), groups=(("a", (0.5, 0.5)), ("b", (0.25, 0.75)))
    )
    view = histogram_view(block)
    heights = [[bar.height for bar in group.bars] for group in view.groups]
    assert heights[0][0] == heights[0][1]
    assert heights[1][1] == pytest.approx(3 * heights[1][0], abs=0.2)
    assert heights[1][1] == max(max(row) for row in heights)
    assert "a: middle 1.00" in view.summary  # half of it lies below 1


def test_a_gap_breaks_a_line_and_is_drawn_nowhere():
    series = Series(label="s", x=(1, 2, 3, 4, 5), y=(0.1, 0.2, None, 0.4, 0.5))
    view = curve_view(Curve(title="T", series=(series,), x_label="x", y_label="y"))
    assert [len(path.split()) for path in view.series[0].paths] == [2, 2]
    assert len(view.series[0].dots) == 4
    assert [row[2] for row in view.rows].count("—") == 1


def test_a_better_value_stands_higher_and_the_diagonal_runs_upwards():
    series = Series(label="s", x=(0.0, 1.0), y=(0.2, 0.9), points=True)
    block = Curve(title="T", series=(series,), x_label="x", y_label="y", diagonal=True)
    view = curve_view(block)
    low, high = view.series[0].dots
    assert high.y < low.y
    x1, y1, x2, y2 = view.diagonal
    assert (x1 < x2, y1 > y2) == (True, True)


def test_a_long_answer_is_cut_between_words_and_nothing_is_lost():
    text = " ".join(f"word{k}" for k in range(400))
    view = text_view(Example(prompt="p", answer=text, score=1.0))
    assert view.answer + view.rest == text
    assert view.rest.startswith(" ")
    unbroken = text_view(Example(prompt="p", answer="x" * 5000, score=None))
    assert len(unbroken.answer + unbroken.rest) == 5000


def test_every_block_of_every_kind_is_drawn():
    drawn = [part.kind for one in with_evidence() for part in parts(one.evidence)]
    assert set(drawn) == {"intervals", "table", "curve", "histogram", "texts"}


@pytest.mark.parametrize(
    ("n_red", "n_unmeasured", "said"),
    [
        (3, 4, "3 failed, 4 not measured: not fit for optimisation yet."),
        (1, 0, "1 failed: not fit for optimisation yet."),
        (0, 1, "No check failed, but 1 check is not measured"),
        (0, len(LINES), "Nothing is measured yet"),
        (0, 0, f"All {len(LINES)} checks passed"),
    ],
)
def test_the_verdict_is_a_yes_only_when_every_line_is_green(n_red, n_unmeasured, said):
    assert said in verdict_sentence(n_red, n_unmeasured)


def test_no_verdict_is_told_by_its_colour_alone():
    assert len({icon for _, icon, _ in VERDICT_WORDS.values()}) == len(Verdict)
    assert len({word for _, _, word in VERDICT_WORDS.values()}) == len(Verdict)


def test_every_line_stands_in_its_group_in_the_order_of_the_page():
    names = [line.name for group in group_views(all_green()) for line in group.lines]
    assert names == list(LINES)


def test_what_turned_red_since_is_what_was_not_red_before():
    before = all_green(red("slices"))
    now = all_green(red("slices"), red("accuracy"))
    assert [line.name for line in turned_red(before, now)] == ["accuracy"]
    assert turned_red(now, before) == []


def test_what_an_approval_passed_over_is_said_in_one_breath():
    assert open_lines(all_green()) == ""
    assert open_lines(all_green(red("slices"))) == "1 check failed"
    missing = unmeasured("accuracy", "no pairs")
    assert open_lines(all_green(missing)) == "1 check not measured"
    assert open_lines(all_green(red("slices"), missing)).startswith("1 check failed, 1 ")


def test_two_models_are_counted_line_by_line():
    found = compare(all_green(red("slices"), red("accuracy")), all_green(red("slices")))
    assert found.n_different == 1
    assert "0 only for B, 1 for" in found.sentence


def test_accuracy_stands_beside_the_baselines_and_what_people_reach():
    accuracy = with_evidence()[0]
    decided = LabelCeiling("decided pairs", 0.78, 0.86, 400, "People reach 78 to 86 %.")
    single = LabelCeiling("single votes", None, None, 0, "Nobody knows.", "nobody")
    tiles = beside_accuracy(accuracy, HumanCeiling(single, decided))
    assert [(tile.label, tile.value) for tile in tiles] == [
        ("This model", "73.1 %"),
        ("The longer one", "61.2 %"),
        ("Counted words", "68.4 %"),
        ("Ceiling", "78.0–86.0 %"),
    ]
    assert ceiling_says(HumanCeiling(single, decided)) == [decided.says, single.says]
    assert len(ceiling_says(HumanCeiling(single, single))) == 1


def test_the_dashed_line_is_named_with_its_value_once():
    rows = (("a", interval(0.7)),)
    named = Intervals(title="T", rows=rows, reference=0.5, reference_label="a coin")
    told = Intervals(title="T", rows=rows, reference=0.6, reference_label="60 %")
    assert [part.reference_words for part in parts((named, told))] == [
        "Dashed line: a coin, 50.0 %.",
        "Dashed line: 60 %.",
    ]
