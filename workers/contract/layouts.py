"""How one job spreads over several processes: what is split, and by whom it is started.

    one      one process
    data     a copy of everything on each; rows are split, gradients summed
    fsdp     parameters, gradients and optimizer split (torch's fully_shard, "FSDP2")
    zero2    gradients and optimizer split (DeepSpeed ZeRO 2)
    zero3    parameters too (DeepSpeed ZeRO 3)

Whatever the layout, `batch_size` is the batch of the whole job and a run's steps are the same.
"""

from dataclasses import dataclass

ONE, DATA, FSDP, ZERO2, ZERO3 = "one", "data", "fsdp", "zero2", "zero3"
PLAIN, TORCHRUN, ACCELERATE = "plain", "torchrun", "accelerate"


@dataclass(frozen=True, slots=True)
class Layout:
    """`title` for people; `sharding` is its name in the memory ledger; `package` what it needs
    beyond torch."""

    name: str
    title: str
    sharding: str
    package: str = ""


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(ONE, "One process", "none"),
        Layout(DATA, "Data parallel: a copy on each GPU", "none"),
        Layout(FSDP, "FSDP: everything split over the GPUs", "fsdp"),
        Layout(ZERO2, "DeepSpeed ZeRO 2: gradients and optimizer split", "zero2", "deepspeed"),
        Layout(ZERO3, "DeepSpeed ZeRO 3: weights split too", "zero3", "deepspeed"),
    )
}
LAUNCHERS = (PLAIN, TORCHRUN, ACCELERATE)
EVERY_GPU = 0  # of the machine, as a number of processes
MOST_PROCESSES = 64
