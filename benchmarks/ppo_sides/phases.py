"""Where a step of Concord's PPO spends its CPU seconds, beside its matrix products alone.

The step is made twice from the same seeds: once to note the shapes of all matrix products by
phase, once on the clock. Then plain products of these very shapes and layouts run in the same
process, warm in the cache: what no arrangement of the step can go below on this core. The fused
attention is no product of this list, so it counts as time and not as work.

Run: python -m benchmarks.ppo_sides.phases FOLDER RESULT.json; FOLDER/plan.json says what to do.
"""

import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.ppo_sides.ours import Notebook, build
from workers.models.forward import Reference
from workers.ppo import model
from workers.ppo.distributed import WholeSteps
from workers.ppo.model import ActorCritic
from workers.recipes.ppo import PPOTrainer

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default}
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # sizes, strides
Product = tuple[Layout, Layout]
REPEATS = 3
FORWARD = "update: forward"


class Phases(TorchDispatchMode):
    """CPU seconds of this thread by phase, an inner one not counted in the outer; where it is
    entered as a mode, the matrix products of each as well."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.products: dict[str, Counter[Product]] = defaultdict(Counter)
        self._names: list[str] = []
        self._mark = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS and self._names:
            one, two = args[:2]
            layouts = (one.shape, one.stride()), (two.shape, two.stride())
            self.products[self._names[-1]][
                tuple((tuple(size), tuple(stride)) for size, stride in layouts)
            ] += 1
        return func(*args, **(kwargs or {}))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._leave()
        self._names.append(name)
        try:
            yield
        finally:
            self._leave()
            self._names.pop()

    def _leave(self) -> None:
        now = time.thread_time()
        if self._names:
            self.seconds[self._names[-1]] += now - self._mark
        self._mark = now

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Calls of `owner.name` are `phase`, but for those of the update's forward pass."""
        own: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(FORWARD if self._names[-1:] == [FORWARD] else phase):
                return own(*args, **kwargs)

        setattr(owner, name, timed)


def watch(phases: Phases) -> None:
    """From here on every step of this process is told apart."""
    phases.around(PPOTrainer, "step", "the rest")
    phases.around(PPOTrainer, "roll_out", "drawing")
    phases.around(ActorCritic, "forward", "log-probabilities")
    phases.around(model, "response_states", "values by a critic of its own")
    phases.around(Reference, "logprobs", "reference")
    phases.around(PPOTrainer, "learn", "update: losses and statistics")
    phases.around(WholeSteps, "look", FORWARD)
    phases.around(WholeSteps, "backward", "update: backward")
    phases.around(WholeSteps, "step", "update: optimizer")


def main(folder: Path, result: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    phases = Phases()
    watch(phases)
    for counting in (True, False):
        loop = build(folder, plan, Notebook())
        phases.seconds.clear()
        if counting:
            with phases:
                loop.step()
        else:
            loop.step()
        loop.context.flush()
        loop.scoring.close()
    rows = [row(name, s, phases.products[name]) for name, s in phases.seconds.items()]
    result.write_text(json.dumps({"phases": rows}))


def row(name: str, seconds: float, products: Counter[Product]) -> dict[str, Any]:
    work = sum(count * operations(one) for one, count in products.items())
    alone = sum(count * plain_seconds(one) for one, count in products.items())
    return {"phase": name, "CPU s": seconds, "GFLOP": work / 1e9, "products alone s": alone}


def operations(product: Product) -> float:
    """Multiplications and additions."""
    (one, _), (two, _) = product
    count = 2.0 * two[-1]
    for size in one:
        count *= size
    return count


def plain_seconds(product: Product) -> float:
    one, two = (torch.empty_strided(*layout).normal_() for layout in product)
    seconds = []
    for _ in range(REPEATS + 1):
        began = time.thread_time()
        torch.matmul(one, two)
        seconds.append(time.thread_time() - began)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
