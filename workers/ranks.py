"""The processes of one job: which one this is, and what they settle together.

Only the first rank reports and writes files. Whatever may come out differently on two ranks, a
command seen a moment earlier or a clock, must be settled here before it decides about a step, or
the ranks wait for each other for ever. No torch until there is more than one process.
"""

import atexit
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def rank() -> int:
    """0 for the first process, which reports."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Which process of its machine this is, and so which accelerator is its own."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def world() -> int:
    """Processes of this job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    return rank() == 0


def highest(value: int) -> int:
    """The highest `value` any rank has; every rank must ask. Alone, or before the ranks have met
    (`torch.distributed` is not initialised), one's own."""
    if not _met():
        return value
    import torch
    from torch import distributed

    told = torch.tensor([value], device=_device())
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    return int(told)


def any_of(flag: bool) -> bool:
    """Whether it is so on any rank; every rank must ask."""
    return bool(highest(int(flag)))


def gathered(value: Any) -> list[Any]:
    """What each rank has, in the order of the ranks; every rank must ask. `value` is anything that
    can be pickled, for ranks are processes of one job and trust each other; tensors on the CPU."""
    if not _met():
        return [value]
    from torch import distributed

    told: list[Any] = [None] * world()
    distributed.all_gather_object(told, value)
    return told


def summed(values: "Tensor") -> "Tensor":
    """The sum of `values` over the ranks, as long on each of them; every rank must ask."""
    if not _met():
        return values
    from torch import distributed

    total = values.to(_device(), copy=True)
    distributed.all_reduce(total)
    return total.to(values.device)


def from_first(value: Any) -> Any:
    """What the first rank has; every rank must ask."""
    return from_rank(0, value)


def from_rank(source: int, value: Any) -> Any:
    """What the rank `source` has; every rank must ask."""
    if not _met():
        return value
    from torch import distributed

    told = [value]
    distributed.broadcast_object_list(told, src=source)
    return told[0]


class Leaving:
    """How a rank ends: after every other exit function, and before Python takes itself apart.

    Threads of Gloo let go of the tensors they sent at their own time. One that does so while the
    interpreter is finalized is ended inside C++, which aborts the process after all its work is
    done (pytorch/pytorch#179291); destroying the groups does not help where a mesh still holds one.

    Made before anything heavy is imported, for exit functions run in reverse order."""

    def __init__(self) -> None:
        self.status: int | None = None  # an end that nobody set stays Python's own
        if world() > 1:
            atexit.register(self._leave)

    def _leave(self) -> None:
        if self.status is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.status)


def disconnect() -> None:
    """Part from the other ranks at the end of the job."""
    if _met():
        from torch import distributed

        distributed.destroy_process_group()


def _met() -> bool:
    """Whether there are several ranks, and they can talk."""
    if world() == 1 or "torch.distributed" not in sys.modules:
        return False
    from torch import distributed

    return distributed.is_initialized()


def _device() -> str:
    """Where tensors must lie to be sent."""
    from torch import distributed

    return "cuda" if "nccl" in distributed.get_backend() else "cpu"
