"""Models in service as their pages print them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.common.numbers import figure, fixed
from apps.common.report.axes import places_for
from apps.common.report.blocks import Part
from apps.monitoring.models import ProbeResult, Watch
from apps.monitoring.probe_words import FIGURES, is_share, label_of
from apps.monitoring.screens.time_charts import Spark, TimePoint, spark, time_chart
from apps.monitoring.selectors.checks import REWARD, shift_of
from apps.monitoring.selectors.outcomes import Series
from measures.drift import Level, Shift
from measures.outcomes import Change, change
from workers.contract.reasons import reason_words

STATE_TONES = {"new": "", "steady": "good", "drifted": "bad", "broken": "bad"}
STATE_ICONS = {
    "new": "hourglass",
    "steady": "circle-check",
    "drifted": "triangle-alert",
    "broken": "circle-x",
}
_ORDER = {name: place for place, name in enumerate(FIGURES)}
BASELINE = "is the baseline"
_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class ProbeMetricRow:
    """`tone` and `verdict` say what the difference means."""

    name: str
    label: str
    what: str
    baseline: str
    now: str
    n: int
    change: str
    bounds: str
    verdict: str
    tone: str
    spark: Spark | None


def probe_metric_rows(
    result: ProbeResult | None,
    history: Sequence[ProbeResult],
    baseline: Mapping[str, Any],
    protocols: Mapping[str, str],
) -> list[ProbeMetricRow]:
    """Of one probe beside its baseline; `history` in order of time, for the small lines."""
    if result is None:
        return []
    names = sorted(result.figures, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    return [_row(name, result, history, baseline, protocols) for name in names]


def _row(
    name: str,
    result: ProbeResult,
    history: Sequence[ProbeResult],
    baseline: Mapping[str, Any],
    protocols: Mapping[str, str],
) -> ProbeMetricRow:
    now = result.figures[name]
    shift = shift_of(now)
    share = is_share(name)
    verdict, tone = _verdict(name, result, shift)
    then = now["mean"] if verdict == BASELINE else now.get("baseline")
    change, bounds = _change(shift, share)
    return ProbeMetricRow(
        name=name,
        label=label_of(name),
        what=FIGURES[name][2] if name in FIGURES else "",
        baseline=_value(then, share) if then is not None else "—",
        now=_estimate(now, share),
        n=int(now["n"]),
        change=change,
        bounds=bounds,
        verdict=verdict,
        tone=tone,
        spark=spark(
            label_of(name), points_of(name, history, protocols), baseline=_base(name, baseline)
        ),
    )


def points_of(
    name: str, history: Sequence[ProbeResult], protocols: Mapping[str, str]
) -> list[TimePoint]:
    """`protocols`: the hash of a probe's protocol by its run."""
    points = []
    for result in history:
        found = result.figures.get(name)
        if found is None:
            continue
        half = _Z95 * found["deviation"] / math.sqrt(max(1, found["n"]))
        fired = any(one.get("figure") == name for one in result.findings)
        points.append(
            TimePoint(
                result.at,
                found["mean"],
                found["mean"] - half,
                found["mean"] + half,
                fired,
                protocols.get(result.run_id, ""),
            )
        )
    return points


def metric_charts(
    history: Sequence[ProbeResult], baseline: Mapping[str, Any], protocols: Mapping[str, str]
) -> list[Part]:
    """Of every figure that was ever measured; lines break where the protocol changes."""
    names = {name for result in history for name in result.figures}
    found = []
    for name in sorted(names, key=lambda one: (_ORDER.get(one, len(_ORDER)), one)):
        points = points_of(name, history, protocols)
        chart = time_chart(label_of(name), points, baseline=_base(name, baseline))
        if chart is not None:
            found.append(chart)
    return found


def _base(name: str, baseline: Mapping[str, Any]) -> float | None:
    found = baseline.get("figures", {}).get(name)
    return found["mean"] if found else None


def _verdict(name: str, result: ProbeResult, shift: Shift | None) -> tuple[str, str]:
    if shift is None and "baseline" in result.figures[name]:
        fired = any(one.get("figure") == name for one in result.findings)
        return ("has changed", "bad") if fired else ("within its limit", "good")
    if shift is None:
        return (BASELINE, "") if not result.findings else ("", "")
    if shift.undefined:
        return shift.undefined, ""
    if any(one.get("figure") == name for one in result.findings):
        return "has moved", "bad"
    if shift.level != Level.NONE:
        return "may have changed: the next probe decides", "warn"
    return ("unchanged", "good") if not shift.value else ("within noise", "good")


def _change(shift: Shift | None, share: bool) -> tuple[str, str]:
    """(change, bounds), of shares in points."""
    if shift is None or shift.value is None:
        return "—", ""
    scale, unit = (100.0, " points") if share else (1.0, "")
    if shift.low is None or shift.high is None:
        return _signed(scale * shift.value, 1 if share else 3) + unit, "no interval"
    if shift.value == 0 and shift.low == shift.high:
        return "0", ""
    low, high = scale * shift.low, scale * shift.high
    places = 1 if share else places_for(low, high)
    bounds = f"{fixed(low, places)} … {fixed(high, places)}"
    return _signed(scale * shift.value, places) + unit, bounds


def _signed(value: float, places: int) -> str:
    text = fixed(value, places)
    return text if value <= 0 or text.strip("0.") == "" else f"+{text}"


def _value(value: float, share: bool) -> str:
    return f"{100 * value:.1f} %".replace("-", "−") if share else str(figure(value))


def _estimate(now: Mapping[str, Any], share: bool) -> str:
    half = _Z95 * now["deviation"] / math.sqrt(max(1, now["n"]))
    if share:
        return f"{100 * now['mean']:.1f} % ± {100 * half:.1f}".replace("-", "−")
    places = places_for(-half, half) if half else 3
    return f"{fixed(now['mean'], places)} ± {fixed(half, places)}"


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """A probe in the history."""

    result: ProbeResult
    score: str
    change: str
    words: str
    tone: str
    is_baseline: bool


def probe_rows(results: Sequence[ProbeResult], watch: Watch) -> list[ProbeRow]:
    rows = []
    for result in results:
        score = result.figures.get(REWARD)
        change, _ = _change(shift_of(score), False)
        words, tone = _words(result)
        rows.append(
            ProbeRow(
                result=result,
                score=_estimate(score, False) if score else "—",
                change=change,
                words=words,
                tone=tone,
                is_baseline=result.run_id == watch.baseline_run_id,
            )
        )
    return rows


def _words(result: ProbeResult) -> tuple[str, str]:
    if not result.findings:
        return "nothing found", "good"
    if not result.figures:
        return "probe failed", "bad"
    others = len(result.findings) - 1
    return result.findings[0]["title"] + (f", and {others} more" if others else ""), "bad"


def finding_tone(finding: Mapping[str, Any]) -> str:
    return "bad" if finding.get("severity") == "critical" else "warn"


def csv_rows(results: Sequence[ProbeResult]) -> list[dict[str, Any]]:
    """A line for each figure of each probe."""
    rows = []
    for result in results:
        for name, found in result.figures.items():
            shift = shift_of(found)
            rows.append(
                {
                    "probed_at": result.at.isoformat(),
                    "run": result.run_id,
                    "figure": name,
                    "mean": found["mean"],
                    "deviation": found["deviation"],
                    "n": int(found["n"]),
                    "baseline": found.get("baseline"),
                    "change": shift.value if shift else None,
                    "change_low": shift.low if shift else None,
                    "change_high": shift.high if shift else None,
                    "p": shift.p if shift else None,
                    "fired": any(one.get("figure") == name for one in result.findings),
                }
            )
        if not result.figures:
            rows.append(
                {"probed_at": result.at.isoformat(), "run": result.run_id, "fired": result.fired}
            )
    return rows


CSV_COLUMNS = (
    "probed_at",
    "run",
    "figure",
    "mean",
    "deviation",
    "n",
    "baseline",
    "change",
    "change_low",
    "change_high",
    "p",
    "fired",
)


# What the world says of models in service, as the page draws it beside their reward.


@dataclass(frozen=True, slots=True)
class OutcomeView:
    name: str
    chart: Part
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class OutcomeGroup:
    """The measurements of one model, and the reward of its probes among them."""

    title: str
    watch: str
    views: list[OutcomeView]


def outcome_group(
    *, title: str, watch: str, series: Sequence[Series], reward: Series | None
) -> OutcomeGroup:
    """All charts in the same time, so that what moved together stands above each other."""
    every = [*([reward] if reward is not None else []), *series]
    times = [at for one in every for at, _ in one.points]
    start, end = (min(times), max(times)) if times else (None, None)
    views = [
        _view(one, is_reward=one is reward, start=start, end=end) for one in every if one.points
    ]
    return OutcomeGroup(title=title, watch=watch, views=views)


def _view(
    one: Series, *, is_reward: bool, start: datetime | None, end: datetime | None
) -> OutcomeView:
    points = []
    for at, found in one.points:
        half = None if found.variance is None else _Z95 * math.sqrt(found.variance)
        low, high = (None, None) if half is None else (found.value - half, found.value + half)
        points.append(TimePoint(at, found.value, low, high))
    unit = f", {one.unit}" if one.unit else ""
    title = "Reward score of the probes" if is_reward else f"{one.name}{unit}"
    chart = time_chart(title, points, start=start, end=end)
    assert chart is not None  # noqa: S101 - there are points
    words, tone = change_words(
        change(one.measured, higher_is_better=one.higher_is_better), one.unit
    )
    return OutcomeView(one.name, chart, words, tone)


def change_words(found: Change, unit: str = "") -> tuple[str, str]:
    """What became of it since the beginning, with its interval; (words, tone)."""
    if found.undefined:
        why = reason_words(found.undefined)
        return f"{why[0].upper()}{why[1:]}.", ""
    space = f" {unit}" if unit else ""
    said = (
        f"{_plain(found.before)} → {_plain(found.after)}{space}, change "
        f"{_outcomes_signed(found.value)} "
        f"({_plain(found.low)} … {_plain(found.high)})"
    )
    if found.direction == 0:
        return f"Within noise: {said}.", ""
    return (f"Better: {said}.", "good") if found.direction > 0 else (f"Worse: {said}.", "bad")


def _plain(value: float | None) -> str:
    return "—" if value is None else str(figure(value))


def _outcomes_signed(value: float | None) -> str:
    text = _plain(value)
    return f"+{text}" if value is not None and value > 0 else text
