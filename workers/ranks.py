"""The processes of one job: which one this is, and what they settle together.

Only the first rank reports and writes files. Whatever may come out differently on two ranks, a
command seen a moment earlier or a clock, must be settled here before it decides about a step, or
the ranks wait for each other for ever. No torch until there is more than one process.
"""

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


def disconnect() -> None:
    """Leave the other ranks at the end of the job. A process that ends while threads of theirs
    still run is aborted by the C++ runtime now and then, after its work is done."""
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
