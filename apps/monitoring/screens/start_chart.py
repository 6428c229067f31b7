"""The metric that broke first as a small chart, with its start step marked."""

import math
from collections.abc import Sequence

from apps.common.numbers import figure
from apps.common.report.blocks import Part, part_of
from apps.training.metric_blocks import Point
from measures.blocks import Curve, Series
from workers.contract.metrics import metric_or_own
from workers.rules.choices import BY_NAME
from workers.rules.diagnosis import Finding

_NAMED = 5  # steps without a number that are told one by one


def metric_of(rule: str) -> str:
    """The metric a rule reads; empty where it reads none (a contract that ended the run)."""
    known = BY_NAME.get(rule)
    return known.metric if known is not None else ""


def start_chart(finding: Finding, metric: str, points: Sequence[Point]) -> Part | None:
    """None where there is nothing to draw."""
    known_as = metric_or_own(metric)
    known = [(step, _number(value)) for step, value in points]
    numbers = [(step, value) for step, value in known if value is not None]
    if len(numbers) < 2:
        return None
    before = [v for step, v in numbers if step < finding.start_step]
    after = [v for step, v in numbers if step >= finding.start_step]
    said = [_mean("before the start", before), _mean("from the start on", after)]
    broken = [step for step, value in points if isinstance(value, str)]
    return part_of(
        Curve(
            title=known_as.title,
            series=(
                Series(
                    label=known_as.title,
                    x=tuple(float(step) for step, _ in known),
                    y=tuple(value for _, value in known),
                ),
            ),
            x_label="step",
            y_label=known_as.unit,
            marks=((finding.start_step, f"start, step {finding.start_step:,}"),),
            note=" ".join([*filter(None, said), *_broken(broken)]),
        )
    )


def _mean(when: str, values: Sequence[float]) -> str:
    return f"Mean {when}: {figure(math.fsum(values) / len(values))}." if values else ""


def _broken(steps: Sequence[int]) -> list[str]:
    if not steps:
        return []
    named = ", ".join(f"{step:,}" for step in steps[:_NAMED])
    more = f" and {len(steps) - _NAMED:,} more" if len(steps) > _NAMED else ""
    return [f"NaN or infinity at step {named}{more}."]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
