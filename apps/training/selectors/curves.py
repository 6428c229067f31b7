"""Which curves a run has."""

from apps.training.metric_blocks import Head
from apps.training.models import MetricBlock, Run


def curve_names(run: Run) -> list[str]:
    """The metrics of which the run has points, by name; from the heads of its blocks alone."""
    heads = MetricBlock.objects.filter(run=run).order_by().values_list("head", flat=True)
    return sorted({name for head in heads for name in Head.read(head).names})
