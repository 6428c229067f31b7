"""TensorBoard: event files below `TRACKING_DIR`, one folder an attempt. Needs no TensorFlow."""

from collections.abc import Mapping
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from workers.contract.events import Histogram
from workers.contract.jobs import JobSpec
from workers.tracking.tool import described, folder_of, worded

FLUSH_S = 10


class TensorBoard:
    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.folder = folder_of("tensorboard") / spec.project / spec.run / f"attempt-{spec.attempt}"

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.writer = SummaryWriter(str(self.folder), flush_secs=FLUSH_S)
        self._table("config", described(self.spec))

    def metrics(self, step: int, at: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, global_step=step, walltime=at)

    def histogram(self, event: Histogram) -> None:
        """Sums are of the bins' middles: the event holds no values."""
        middles = [(a + b) / 2 for a, b in zip(event.edges, event.edges[1:], strict=False)]
        self.writer.add_histogram_raw(
            f"histogram/{event.name}",
            min=event.edges[0],
            max=event.edges[-1],
            num=sum(event.counts),
            sum=sum(n * x for n, x in zip(event.counts, middles, strict=True)),
            sum_squares=sum(n * x * x for n, x in zip(event.counts, middles, strict=True)),
            bucket_limits=event.edges[1:],
            bucket_counts=event.counts,
            global_step=event.step,
        )

    def end(self, outcome: str, summary: Mapping[str, Any]) -> None:
        self._table("outcome", {"outcome": outcome, **summary})
        self.writer.close()

    def _table(self, tag: str, rows: Mapping[str, Any]) -> None:
        """Markdown, as the text page shows it."""
        lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
        self.writer.add_text(tag, "\n".join(("| | |", "|---|---|", *lines)))


def _cell(value: Any) -> str:
    return worded(value).replace("|", "\\|").replace("\n", " ")


def make(spec: JobSpec) -> TensorBoard:
    return TensorBoard(spec)
