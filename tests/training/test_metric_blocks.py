"""Points as compressed columns: what goes in comes out, to the last digit and the last kind of
nothing; small blocks become large ones without a point lost or moved."""

import math
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.training import metric_blocks, selectors, services
from apps.training.metric_blocks import Head, block_fields, columns_of, decode, encode, gathered
from apps.training.models import MetricBlock, Run, RunAttempt, RunEvent
from apps.training.selectors import pages
from apps.training.services import points as storing
from tests.training.reports import measured, report
from workers.contract import Finished, Metrics, Opened

VALUES = st.one_of(
    st.none(),
    st.sampled_from(["nan", "inf", "-inf"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
)
EVENTS = st.lists(
    st.lists(st.integers(0, 2**63 - 1), max_size=9).flatmap(
        lambda steps: st.tuples(
            st.just(steps),
            st.dictionaries(
                st.text(max_size=6), st.lists(VALUES, min_size=len(steps), max_size=len(steps))
            ),
        )
    ),
    max_size=5,
)


def bits(value: Any) -> Any:
    """Equal for the same number, bit by bit: 0.0 and -0.0 differ."""
    return struct.pack("d", float(value)) if isinstance(value, int | float) else value


@settings(max_examples=120, deadline=None)
@given(EVENTS)
def test_every_value_comes_back_as_it_went_in(events: list[Any]) -> None:
    told: dict[str, list[Any]] = {}
    for steps, values in events:
        for name, row in values.items():
            told.setdefault(name, []).extend(zip(steps, map(bits, row), strict=True))
    columns = gathered(columns_of(steps, values) for steps, values in events)
    read = decode(*encode(columns))
    assert {n: [(s, bits(v)) for s, v in one.points()] for n, one in read.items()} == told


@settings(max_examples=120, deadline=None)
@given(EVENTS)
def test_the_head_knows_the_newest_value_that_was_defined(events: list[Any]) -> None:
    columns = gathered(columns_of(steps, values) for steps, values in events)
    expected = {}
    for name, one in columns.items():
        for step, value in one.points():  # of two at one step the later one counts
            if value is not None and step >= expected.get(name, (-1,))[0]:
                expected[name] = step, bits(float(value))
    head = Head.read(encode(columns, at=12.5)[0])
    assert {n: (s, bits(v)) for n, (s, v) in head.newest(columns).items()} == expected
    assert head.at == 12.5
    assert Head.read(encode(columns)[0]).at is None, "as in blocks from before it was kept"


@pytest.mark.parametrize(
    ("value", "width"),
    [
        (0.1, 8),
        (float(np.float32(0.1)), 4),
        (16_777_217.0, 8),
        (1e300, 8),
        (5e-324, 8),
        (-0.0, 4),
        (3, 4),
    ],
)
def test_a_column_is_narrow_only_where_no_digit_is_lost(value: float, width: int) -> None:
    head, body = encode(columns_of([1, 2], {"x": [value, "nan"]}))
    assert Head.read(head).columns[0][2] == width
    assert bits(decode(head, body)["x"].points()[0][1]) == bits(value)


def test_one_metric_of_a_large_block_is_read_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = list(range(3000))
    columns = columns_of(steps, {f"m{i}": [math.sin(s * i) for s in steps] for i in range(20)})
    head, body = encode(columns)
    streams = len(Head.read(head).streams)
    opened: list[int] = []
    unpack = metric_blocks.zlib.decompress
    monkeypatch.setattr(
        metric_blocks.zlib, "decompress", lambda raw: opened.append(len(raw)) or unpack(raw)
    )
    (one,) = decode(head, body, names=["m7"]).values()
    assert one.points() == columns["m7"].points()
    assert streams > 5
    assert len(opened) <= 3, "the head, the steps, the column"


def test_the_head_alone_says_the_newest_number_of_each_metric() -> None:
    fields = block_fields(
        columns_of([5, 7, 6, 7], {"a": [1.0, 2.0, 3.0, 4.0], "b": [0.5, "inf", None, "nan"]})
        | columns_of([1], {"none": [None]})
    )
    assert Head.read(fields["head"]).latest() == {"a": (7, 4.0), "b": (5, 0.5)}
    assert (fields["first_step"], fields["last_step"], fields["points"]) == (1, 7, 9)


def test_a_block_of_a_later_version_is_not_guessed_at() -> None:
    head = metric_blocks.zlib.compress(b'{"version": 2}')
    with pytest.raises(ValueError, match="version 2"):
        decode(head, b"")


# --- blocks of a run ---------------------------------------------------------------------------


def told(run: Run, batches: int, first: int = 1) -> None:
    """A batch a step, of two metrics; the second is undefined at every third step."""
    for step in range(first, first + batches):
        rare = None if step % 3 else "nan"
        report(run, Metrics(steps=[step], values={"loss": [step / 7], "rare": [rare]}), first=step)


def test_small_blocks_are_merged_and_show_the_same_points(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "FULL_POINTS", 40)
    told(run, 70)
    rows = MetricBlock.objects.filter(run=run, attempt=1).order_by("first_seq")
    # Merged when there were 32 small ones, after batches 32 and 63; seven came since.
    assert [row.points for row in rows] == [40, 40, 40, 6, *[2] * 7]
    assert all(a.last_seq < b.first_seq for a, b in pairwise(rows))
    series = selectors.metric_series(run=run)
    assert series["loss"] == [(step, step / 7) for step in range(1, 71)]
    assert series["rare"] == [(step, None if step % 3 else "nan") for step in range(1, 71)]
    assert pages.latest_metrics(run, ["loss", "rare", "never"]) == {"loss": (70, 10.0)}


def test_a_full_block_is_left_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "FULL_POINTS", 10)
    report(run, measured(1, 10))
    (full,) = MetricBlock.objects.filter(run=run)
    for n in range(2, 40):
        report(run, measured(n + 9, n + 9), first=n)
    assert MetricBlock.objects.filter(pk=full.pk).exists()
    assert [s for s, _ in selectors.metric_series(run=run)["loss"]] == list(range(1, 49))


def test_the_last_small_blocks_become_one_when_the_run_ends(run: Run) -> None:
    told(run, 9)
    assert MetricBlock.objects.filter(run=run).count() == 9
    report(run, measured(10, 12), Finished(step=12), first=10)
    (row,) = MetricBlock.objects.filter(run=run)
    assert (row.first_seq, row.last_seq, row.points) == (1, 10, 21)
    assert (row.first_step, row.last_step) == (1, 12)


def test_of_two_values_at_one_step_the_later_one_counts_after_merging_too(run: Run) -> None:
    report(run, Metrics(steps=[1, 2, 2], values={"x": [1.0, 2.0, 3.0]}))
    report(run, Metrics(steps=[1], values={"x": [9.0]}), first=2)
    assert selectors.metric_series(run=run)["x"] == [(1, 9.0), (2, 3.0)]
    storing.blocks_merge(run_id=run.pk, attempt=1, least=2)
    assert MetricBlock.objects.filter(run=run).count() == 1
    assert selectors.metric_series(run=run)["x"] == [(1, 9.0), (2, 3.0)]


def test_a_stretch_of_steps_is_read_alone(run: Run) -> None:
    told(run, 20)
    series = selectors.metric_series(run=run, names=["loss"], from_step=5, to_step=8)
    assert [step for step, _ in series["loss"]] == [5, 6, 7, 8]
    assert selectors.metric_series(run=run, from_step=21) == {}


def test_points_that_no_trainer_sent_are_stored_as_if_one_had(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "FULL_POINTS", 100)
    report(run, Opened())
    before = pages.newest_event(run)
    curve: list[Any] = [(step, step * 0.1) for step in range(250)]
    curve[7] = (7, float("nan"))
    services.metrics_store(run=run, attempt=1, series={"a": curve, "b": [(3, None)], "c": []})
    assert MetricBlock.objects.filter(run=run).count() == 3
    series = selectors.metric_series(run=run)
    assert set(series) == {"a", "b"}
    assert series["a"][6:9] == [(6, 6 * 0.1), (7, "nan"), (8, 0.8)]
    assert len(series["a"]) == 250
    assert pages.newest_event(run) != before
    assert RunAttempt.objects.get(run=run).last_seq == 4
    assert report(run, measured(300, 300), first=5).applied == 1, "its trainer may go on"


def test_broken_points_of_a_superseded_attempt_are_kept_as_a_violation(run: Run) -> None:
    report(run, Opened())
    Run.objects.filter(pk=run.pk).update(attempt=2)
    late = Metrics(steps=[1, 2], values={"loss": [0.5]})
    assert report(run, late, first=2).invalid == 1
    assert run.state == "running", "no fault of the attempt that counts"
    assert RunEvent.objects.get(run=run, seq=2).type == "Invalid"
    assert not MetricBlock.objects.filter(run=run).exists()


# --- thinning, beside the way it was done point by point ----------------------------------------


def thin_by_hand(points: list[Any], most: int) -> list[Any]:
    """One stretch after the other, as a person would."""

    def height(point: Any) -> float:
        return float(point[1]) if isinstance(point[1], int | float) else math.inf

    if len(points) <= most:
        return points
    if most < 4:
        return points[:: max(1, len(points) - 1)][:most]
    inner, stretches = points[1:-1], (most - 2) // 2
    kept = [points[0]]
    for i in range(stretches):
        stretch = inner[i * len(inner) // stretches : (i + 1) * len(inner) // stretches]
        ends = {stretch.index(min(stretch, key=height)), stretch.index(max(stretch, key=height))}
        kept += [stretch[k] for k in sorted(ends)]
    return [*kept, points[-1]]


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, max_size=200), st.integers(1, 60))
def test_thinning_all_at_once_keeps_what_thinning_by_hand_keeps(
    values: list[Any], most: int
) -> None:
    points = list(enumerate(values))
    assert selectors.thin(points, most) == thin_by_hand(points, most)
    (column,) = columns_of(range(len(values)), {"x": values}).values()
    assert selectors.thin_column(column, most).points() == thin_by_hand(points, most)
