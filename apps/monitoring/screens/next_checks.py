"""The ordered next checks of a diagnosis: what each asks, whether it can run, what it said."""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.common.numbers import figure
from apps.common.playbook import experiment_words
from apps.common.report.blocks import Part, parts
from apps.monitoring.selectors.checks import CONFIRMS, REFUTES, ExperimentState
from apps.training.models import Run
from measures.blocks import Histogram
from workers.rules.diagnosis import Finding
from workers.rules.experiments import EXPERIMENTS, Experiment, next_experiments

FILE = "check.json"
BINS = 20
MOST_FIGURES = 12
OUTCOMES = {
    CONFIRMS: ("Confirms the suspected cause", "bad"),
    REFUTES: ("Speaks against it", "good"),
    "undecided": ("Decides nothing", "warn"),
}


@dataclass(frozen=True, slots=True)
class CheckRow:
    """`means` is what the outcome says of the suspicion; `pictures` are drawn from check.json."""

    experiment: Experiment
    question: str
    confirms: str
    refutes: str
    is_next: bool
    key: str
    why_not: str
    needs: str
    run: Run | None
    is_live: bool
    outcome: str
    tone: str
    words: str
    means: str
    pictures: list[Part] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChecksView:
    """`ordered` belong to the stage that broke first, `others` are the rest: folded away unless
    they have been launched."""

    ordered: list[CheckRow]
    others: list[CheckRow]
    any_live: bool
    seen: str


def checks_view(
    first: Finding | None, states: Sequence[ExperimentState], reports: Mapping[str, Any]
) -> ChecksView:
    """`reports`: by the id of a check's run, its check.json."""
    known = {one.experiment.id: one for one in states}
    wanted = [
        one.id
        for one in (next_experiments(first.stage, first=first.experiment) if first else ())
        if one.id in known
    ]
    waiting = next(
        (name for name in wanted if known[name].run is None and known[name].available), ""
    )
    rows = {name: _row(one, name == waiting, reports) for name, one in known.items()}
    rest = [name for name in EXPERIMENTS if name in rows and name not in wanted]
    launched = [name for name in rest if known[name].run is not None]
    return ChecksView(
        ordered=[rows[name] for name in (*wanted, *launched)],
        others=[rows[name] for name in rest if name not in launched],
        any_live=any(one.is_live for one in states),
        seen=".".join(f"{one.run.pk}:{one.run.state}" for one in states if one.run is not None),
    )


def _row(state: ExperimentState, is_next: bool, reports: Mapping[str, Any]) -> CheckRow:
    outcome, tone = OUTCOMES.get(state.outcome, ("", ""))
    experiment = state.experiment
    asked = experiment_words(experiment.id)
    confirms, refutes = (one.text for one in asked.readings)
    data = reports.get(state.run.pk, {}) if state.run else {}
    return CheckRow(
        experiment=experiment,
        question=asked.do,
        confirms=confirms,
        refutes=refutes,
        is_next=is_next,
        key=secrets.token_urlsafe(16),
        why_not=state.why_not,
        needs=state.needs,
        run=state.run,
        is_live=state.is_live,
        outcome=outcome,
        tone=tone,
        words=state.words,
        means={CONFIRMS: confirms, REFUTES: refutes}.get(state.outcome, ""),
        pictures=_pictures(data),
        figures=_figures(data),
    )


def _pictures(data: Mapping[str, Any]) -> list[Part]:
    """A trainer wrote the file: what does not fit together is left out."""
    details = data.get("details")
    if not isinstance(details, Mapping):
        return []
    try:
        block = _rewards(details.get("histogram")) or _margins(details.get("margins"))
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        return []
    return parts([block]) if block is not None else []


def _rewards(drawn: Any) -> Histogram | None:
    """Rewards of the kept answers, the early third above the late one."""
    if not isinstance(drawn, Mapping):
        return None
    edges = tuple(float(edge) for edge in drawn["edges"])
    counts = drawn["counts"]
    groups = []
    for name, words in (("all", "All answers"), ("early", "Early third"), ("late", "Late third")):
        values = [float(n) for n in counts.get(name, ())]
        total = math.fsum(values)
        if len(values) == len(edges) - 1 and total > 0:
            n = f"n = {total:,.0f}"
            groups.append((f"{words}, {n}", tuple(value / total for value in values)))
    if not groups:
        return None
    return Histogram(
        title="Rewards of the kept answers",
        edges=edges,
        groups=tuple(groups),
        x_label=str(drawn.get("unit", "")),
    )


def _margins(margins: Any) -> Histogram | None:
    """Score of the better answer less that of the worse, of pairs whose better answer is known."""
    if not isinstance(margins, list):
        return None
    values = [float(one) for one in margins if isinstance(one, int | float) and math.isfinite(one)]
    if len(values) < 2:
        return None
    reach = max(abs(value) for value in values) or 1.0
    width = 2 * reach / BINS
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int((value + reach) / width))] += 1
    return Histogram(
        title="Better answer less worse answer",
        edges=tuple(-reach + i * width for i in range(BINS + 1)),
        groups=((f"Known pairs, n = {len(values):,}", tuple(n / len(values) for n in counts)),),
        x_label="raw score; under 0 the worse answer is preferred",
    )


def _figures(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Plain numbers, and intervals with theirs."""
    found = data.get("figures")
    if not isinstance(found, Mapping):
        return []
    rows = []
    for name, value in list(found.items())[:MOST_FIGURES]:
        words = _figure(value)
        if words:
            rows.append((str(name).replace("_", " "), words))
    return rows


def _figure(value: Any) -> str:
    if isinstance(value, int | float | str):
        return str(figure(value))
    if not isinstance(value, Mapping) or not isinstance(value.get("value"), int | float):
        return ""
    text = str(figure(value["value"]))
    low, high = value.get("low"), value.get("high")
    if isinstance(low, int | float) and isinstance(high, int | float):
        text += f" ({figure(low)} … {figure(high)})"
    return text + (f", n = {value['n']:,}" if isinstance(value.get("n"), int) else "")
