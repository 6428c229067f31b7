"""Progress bars by tqdm where it is installed and somebody looks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from concord.transport import Progress
from concord.types import DatasetDetail, RunDetail

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


def is_watched() -> bool:
    """Whether bars can be drawn: tqdm is installed, and this is a terminal or a notebook."""
    return tqdm is not None and ("ipykernel" in sys.modules or sys.stderr.isatty())


@contextmanager
def bytes_bar(title: str, wanted: bool, on_progress: Progress | None) -> Iterator[Progress | None]:
    """What to call with (bytes that are through, of all): `on_progress`, else a bar, else None."""
    if on_progress is not None or not wanted or not is_watched():
        yield on_progress
        return
    with tqdm(desc=title, unit="B", unit_scale=True, unit_divisor=1024) as bar:

        def show(through: int, total: int) -> None:
            bar.total = total
            bar.update(through - bar.n)

        yield show


@contextmanager
def steps_bar(wanted: bool, on_progress: Any) -> Iterator[Any]:
    """What to call with a run after each look at it."""
    if on_progress is not None or not wanted or not is_watched():
        yield on_progress
        return
    with tqdm(unit="step") as bar:

        def show(run: RunDetail) -> None:
            bar.set_description(f"{run.name}: {run.phase or run.state}", refresh=False)
            bar.total = run.total_steps
            bar.update(run.step - bar.n)
            bar.refresh()

        yield show


@contextmanager
def making_bar(wanted: bool, on_progress: Any) -> Iterator[Any]:
    """What to call with a dataset that is being made after each look at it."""
    if on_progress is not None or not wanted or not is_watched():
        yield on_progress
        return
    with tqdm(bar_format="{desc} {elapsed}") as bar:

        def show(dataset: DatasetDetail) -> None:
            bar.set_description_str(f"{dataset.name}: {dataset.step or dataset.state}")

        yield show
