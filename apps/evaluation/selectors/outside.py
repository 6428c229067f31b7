"""Reading results that another program measured. Those of one protocol stand beside each other,
others never do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.common.numbers import figure
from apps.evaluation.models import OutsideResult
from apps.training.models import Checkpoint, Run
from workers.contract.protocol import Difference, differences

MOST_LINES = 12  # of the differences between two protocols that a page shows
MOST_ROWS = 2_000  # of a project's page


def outside_results(*, project: Project, checkpoint_id: str = "") -> QuerySet[OutsideResult]:
    """Newest file first, its tasks by name."""
    rows = OutsideResult.objects.filter(project=project).select_related("checkpoint__run")
    if checkpoint_id:
        rows = rows.filter(checkpoint=checkpoint_id.replace("\x00", ""))
    return rows.order_by("-created_at", "task")


def outside_result_get(*, project: Project, result_id: str) -> OutsideResult:
    """Raises `Missing`."""
    row = outside_results(project=project).filter(pk=result_id.replace("\x00", "")).first()
    if row is None:
        raise Missing("There is no such result in this project.", field="result")
    return row


@dataclass(frozen=True, slots=True)
class ByProtocol:
    """Results that may be compared: of one task under one hash. `unlike`: the lines in which the
    protocol differs from that of the first group of the same task and program, at most
    `MOST_LINES`; `more` are left out."""

    first: OutsideResult
    rows: Sequence[OutsideResult]
    metrics: Sequence[str]
    table: Sequence[tuple[OutsideResult, Sequence[str]]]
    unlike: Sequence[Difference]
    more: int


def by_protocol(rows: Sequence[OutsideResult]) -> list[ByProtocol]:
    """By task, the groups with most results first."""
    groups: dict[tuple[str, str, str], list[OutsideResult]] = {}
    for row in rows:
        groups.setdefault((row.task, row.program, row.protocol_sha256), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: (*item[0][:2], -len(item[1]), item[0][2]))
    found: list[ByProtocol] = []
    firsts: dict[tuple[str, str], OutsideResult] = {}
    for (task, program, _), of in ordered:
        first = firsts.setdefault((task, program), of[0])
        unlike = outside_differences(first, of[0])
        names = list(dict.fromkeys(one["name"] for row in of for one in row.metrics))
        found.append(
            ByProtocol(
                of[0],
                of,
                names,
                [(row, _cells(row, names)) for row in of],
                unlike[:MOST_LINES],
                max(0, len(unlike) - MOST_LINES),
            )
        )
    return found


def _cells(row: OutsideResult, names: Sequence[str]) -> list[str]:
    by_name = {one["name"]: metric_words(one) for one in row.metrics}
    return [by_name.get(name, "—") for name in names]


def outside_differences(one: OutsideResult, other: OutsideResult) -> list[Difference]:
    """The lines in which their protocols differ; none for results that may be compared."""
    return differences(one.protocol, other.protocol)


def metric_words(metric: dict[str, Any]) -> str:
    """0.412 ± 0.013, n = 1,319: the value with its standard error."""
    said = figure(metric["value"], 4)
    if metric.get("stderr") is not None:
        said += f" ± {figure(metric['stderr'], 2)}"
    return f"{said}, n = {metric['n']:,}" if metric.get("n") else said


def result_words(row: OutsideResult) -> str:
    """Every metric of a result, in one line."""
    return "; ".join(f"{one['name']} {metric_words(one)}" for one in row.metrics)


def outside_of(checkpoint: Checkpoint) -> list[OutsideResult]:
    """Of a model, by task."""
    return list(OutsideResult.objects.filter(checkpoint=checkpoint).order_by("task", "-created_at"))


def run_uses(run: Run) -> list[str]:
    """What a run's deletion would take along, in words (`apps.common.registry`)."""
    n = OutsideResult.objects.filter(checkpoint__run=run).count()
    return [f"its models have {n} result{'' if n == 1 else 's'} from outside"] if n else []
