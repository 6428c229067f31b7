"""What each measure against a lack of memory would save, and which make a run fit. No torch.

The order is that of their price: a smaller micro-batch changes nothing but speed, checkpointing a
third of it, adapters and shorter sequences change what is learned, and more devices cost money.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.contract.jobs import DATA, LAYOUTS, ONE, ZERO3
from workers.memory.ledger import GENERATION, RESIDENT, UPDATE, Held, Ledger, Line, Plan, ledger

DEVICES = (2, 4, 8, 16, 32, 64)
GB = 1e9
TIGHT = 0.85  # over this share of the room an estimate that is right to a fifth may be wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Something to do. `change` answers the plan with it, or None where it is done already."""

    name: str
    title: str
    fields: tuple[str, ...]  # of a recipe; the first that it has is the one to set
    change: Callable[[Plan], Plan | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A measure alone: the peak with it, and what it saves."""

    measure: Measure
    peak: float
    saves: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Measures, taken one after the other, until the run fits; `fits` False where none do."""

    measures: tuple[Measure, ...]
    plan: Plan
    peak: float
    fits: bool


def _smaller_batch(plan: Plan) -> Plan | None:
    """Half of the rows in every phase that computes rows."""
    rows = ("update_rows", "look_rows", "generate_rows", "scoring_rows")
    new = {name: max(1, getattr(plan, name) // 2) for name in rows if getattr(plan, name) > 1}
    return replace(plan, **new) if new else None


def _shorter(plan: Plan) -> Plan | None:
    if plan.update_length < 128:
        return None
    names = ("update_length", "update_response", "generate_length", "scoring_length")
    more = ("rollout_prompt", "rollout_response")
    return replace(plan, **{name: getattr(plan, name) // 2 for name in (*names, *more)})


def _checkpointed(plan: Plan) -> Plan | None:
    return None if plan.gradient_checkpointing else replace(plan, gradient_checkpointing=True)


def _adapters(plan: Plan) -> Plan | None:
    """Adapters on the policy; a reference that is the starting policy is then not needed."""
    if not any(held.adapted for held in plan.models):
        return None
    kept = [held for held in plan.models if not held.spare]
    return replace(plan, models=tuple(_adapted(held) for held in kept))


def _adapted(held: Held) -> Held:
    return replace(held, shape=held.adapted, adapted=None) if held.adapted else held


def _shared_critic(plan: Plan) -> Plan | None:
    """A value head on the policy's trunk in the place of a critic of its own."""
    models = tuple(held for held in plan.models if held.role != "critic")
    if len(models) == len(plan.models):
        return None
    return replace(plan, models=models, value_head=True)


def _eight_bit(plan: Plan) -> Plan | None:
    if plan.optimizer == "adamw_8bit" or plan.sharding != "none":
        return None
    return replace(plan, optimizer="adamw_8bit")


def _half(plan: Plan) -> Plan | None:
    """bfloat16 passes, on a device that has them."""
    if plan.device == "cpu" or plan.precision == "bfloat16":
        return None
    return replace(plan, precision="bfloat16", models=tuple(_halved(held) for held in plan.models))


def _halved(held: Held) -> Held:
    kept = held.shape.kept
    half = replace(
        kept,
        per_length=kept.per_length / 2,
        per_token=kept.per_token / 2,
        per_pair=kept.per_pair / 2,
    )
    shape = replace(held.shape, kept=half, dtype="bfloat16")
    return replace(held, shape=shape)


def _narrow(plan: Plan) -> Plan | None:
    """Weights that do not train in two bytes."""
    return _kept(plan, lambda held: 2.0 if _is_frozen(held) else held.weight_bytes)


def _four_bit(plan: Plan) -> Plan | None:
    """The layers below adapters in 4 bits."""
    return _kept(plan, lambda held: held.shape.four_bit_bytes if _has_base(held) else 4.0)


def _kept(plan: Plan, wanted: Callable[[Held], float]) -> Plan | None:
    """With so many bytes for a weight of each model, where that is fewer."""
    if plan.sharding != "none":  # what is split is of one format
        return None
    models = tuple(
        replace(held, weight_bytes=min(held.weight_bytes, wanted(held))) for held in plan.models
    )
    return None if models == plan.models else replace(plan, models=models)


def _has_base(held: Held) -> bool:
    return held.role == "policy" and held.shape.adapters > 0


def _is_frozen(held: Held) -> bool:
    """The model below adapters, or the reference; readers have a number format of their own."""
    return held.role == "reference" or _has_base(held)


def _sharded(sharding: str, devices: int) -> Callable[[Plan], Plan | None]:
    def change(plan: Plan) -> Plan | None:
        if plan.devices >= devices and plan.sharding == sharding:
            return None
        wide = tuple(
            replace(held, weight_bytes=4) if _is_frozen(held) else held for held in plan.models
        )
        return replace(plan, sharding=sharding, devices=devices, models=wide, optimizer="adamw")

    return change


MICRO_BATCH = Measure(
    name="micro_batch",
    title="half the micro-batch",
    fields=("max_tokens_per_batch", "microbatch_size", "gradient_accumulation", "minibatch_size"),
    change=_smaller_batch,
)
CHECKPOINTING = Measure(
    name="gradient_checkpointing",
    title="gradient checkpointing",
    fields=("gradient_checkpointing",),
    change=_checkpointed,
)
PRECISION = Measure(
    name="precision", title="passes in bfloat16", fields=("precision",), change=_half
)
SEQUENCE = Measure(
    name="sequence",
    title="sequences half as long",
    fields=("max_new_tokens", "max_completion_length", "max_prompt_length", "max_length"),
    change=_shorter,
)
ADAPTERS = Measure(
    name="lora",
    title="low-rank adapters (rank 16)",
    fields=("lora_rank",),
    change=_adapters,
)
CRITIC = Measure(
    name="shared_critic",
    title="a value head on the policy's trunk",
    fields=("critic",),
    change=_shared_critic,
)
FROZEN = Measure(
    name="frozen_weights",
    title="frozen weights in bfloat16",
    fields=("frozen_weights",),
    change=_narrow,
)
OPTIMIZER = Measure(
    name="adamw_8bit", title="8-bit optimizer", fields=("optimizer",), change=_eight_bit
)

FOUR_BIT = Measure(
    name="base_4bit",
    title="the layers below the adapters in 4 bits",
    fields=("base_4bit",),
    change=_four_bit,
)


def sharding(name: str, devices: int) -> Measure:
    titles = {"zero1": "ZeRO 1", "zero2": "ZeRO 2", "zero3": "ZeRO 3", "fsdp": "FSDP"}
    return Measure(
        name=name,
        title=f"{titles[name]} over {devices} devices",
        fields=() if name == "zero1" else ("layout",),  # ZeRO 1 is no layout of ours
        change=_sharded(name, devices),
    )


# One at a time, for the table; FSDP splits what ZeRO 3 splits.
ALONE = (
    MICRO_BATCH,
    SEQUENCE,
    CHECKPOINTING,
    ADAPTERS,
    CRITIC,
    PRECISION,
    FROZEN,
    FOUR_BIT,
    OPTIMIZER,
    *(sharding(name, 2) for name in ("zero1", "zero2", "zero3", "fsdp")),
)


def savings(found: Ledger) -> list[Saving]:
    """Every measure that is not taken yet, alone; one that costs more than it saves is left out, as
    checkpointing is on a model of one layer."""
    made = []
    for measure in ALONE:
        plan = measure.change(found.plan)
        if plan is not None:
            peak = ledger(plan).peak
            if peak < found.peak:
                made.append(Saving(measure=measure, peak=peak, saves=found.peak - peak))
    return made


def way_to_fit(found: Ledger, room: float) -> Way:
    """Measures that bring the peak under `room`, by as much as the estimate may be wrong.

    The cheapest first: the micro-batch down to one row, checkpointing, precision, sequences halved
    up to twice, adapters, a shared critic, the 8-bit optimizer, 4 bits, then as many devices as it
    takes. What turns out not to be needed is left out again, what changes the learning before what
    costs time."""
    least = TIGHT * room
    order = (
        *(MICRO_BATCH,) * 12,
        CHECKPOINTING,
        PRECISION,
        FROZEN,
        SEQUENCE,
        ADAPTERS,
        FROZEN,
        CRITIC,
        SEQUENCE,
        OPTIMIZER,
        FOUR_BIT,
        *(sharding("fsdp", devices) for devices in DEVICES),  # needs torch alone
    )
    taken: list[Measure] = []
    plan = found.plan
    for measure in order:
        if ledger(plan).peak <= least:
            break
        if taken and taken[-1].name == measure.name == "fsdp":
            taken.pop()  # more devices take the place of fewer
        new = measure.change(plan)
        if new is not None and ledger(new).peak < ledger(plan).peak:
            plan = new
            taken.append(measure)
    if ledger(plan).peak <= least:
        for measure in (
            FOUR_BIT,
            SEQUENCE,
            SEQUENCE,
            CRITIC,
            ADAPTERS,
            OPTIMIZER,
            CHECKPOINTING,
            *taken,
        ):
            if measure not in taken:
                continue
            without = list(taken)
            without.remove(measure)
            if ledger(_after(found.plan, without)).peak <= least:
                taken = without
    plan = _after(found.plan, taken)
    peak = ledger(plan).peak
    return Way(measures=tuple(taken), plan=plan, peak=peak, fits=peak <= room)


def _after(plan: Plan, measures: Sequence[Measure]) -> Plan:
    for measure in measures:
        plan = measure.change(plan) or plan
    return plan


# How much memory this machine has for a run.

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes that this process may hold in all, what it holds already included."""

    bytes: float
    device: str  # cpu | cuda
    name: str


def room() -> Room:
    """The first GPU's memory that others do not use; without one what the system, and the limit of
    this process's control group, leave."""
    import torch  # here, so that words about a ledger need no torch

    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Room(
            bytes=float(free + torch.cuda.memory_reserved()),
            device="cuda",
            name=torch.cuda.get_device_name(),
        )
    left = [_available(), _group_left(CGROUP)]
    return Room(
        bytes=own_bytes() + min(bytes_ for bytes_ in left if bytes_ is not None),
        device="cpu",
        name="the processor's memory",
    )


def own_bytes() -> float:
    """Resident memory of this process."""
    with contextlib.suppress(OSError):
        return 4096.0 * int(Path("/proc/self/statm").read_text().split()[1])
    return 0.0


def _available() -> float | None:
    """What the kernel thinks can be had without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    return None


def _group_left(group: Path) -> float | None:
    """What the control group's limit leaves; pages of files, which can be dropped, do not count."""
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return float(int(limit) - used + int(stat.get("inactive_file", 0)))


# What one process holds under each layout, so that a run can be told which one fits. No torch.
#
# `ledger` splits what a sharding could split. Here stands what our recipes split: frozen models
# (reference, reward model, judge) stay whole on every process, answers are drawn by weights that
# were
# gathered for it, and data parallel keeps the sum of the gradients beside the gradients. Rows of a
# pass are not divided: a process computes as many at once as one alone would.

PROCESSES = (2, 4, 8)  # for which layouts are compared
WHOLE = "weights that stay whole"
GATHERED = "gathered weights"
SUMMED = "summed gradients"


def layout_ledger(plan: Plan, layout: str, processes: int) -> Ledger:
    """The ledger of one of `processes` processes. `plan` is that of one process alone."""
    if layout == ONE or processes < 2:
        return ledger(plan)
    found = ledger(replace(plan, sharding=LAYOUTS[layout].sharding, devices=processes))
    split = found.plan.share("zero3", "fsdp") < 1
    meets_at_each_call = layout == ZERO3 and plan.generate_rows
    if split and (meets_at_each_call or not plan.chunks_when_split):
        found = replace(found, lines=tuple(_in_one_piece(found)))
    more = [*_summed(found)] if layout == DATA else []
    if split:
        more += [*_whole(found), *_gathered(found)]
    return replace(found, lines=(*found.lines, *more))


def _in_one_piece(found: Ledger) -> Iterator[Line]:
    """Under ZeRO 3 ranks meet at each call of the output layer, so each makes one a pass; where
    the library splits by fully_shard, the layer cannot be called outside of the model's pass."""
    yield from (line for line in found.lines if line.phase != UPDATE)
    whole = ledger(replace(found.plan, logits_chunk=None))
    yield from (line for line in whole.lines if line.phase == UPDATE)


def _summed(found: Ledger) -> list[Line]:
    size = found.of_part("gradients")
    how = "the buckets in which gradients are summed over the processes: as large as they are"
    line = Line(role="policy", part=SUMMED, phase=UPDATE, bytes=size, how=how)
    return [line] if size else []


def _whole(found: Ledger) -> list[Line]:
    """Of frozen models: what the split took away."""
    rest = 1 - 1 / found.plan.devices
    return [
        Line(
            role=held.role,
            part=WHOLE,
            phase=RESIDENT,
            bytes=held.own_parameters * held.weight_bytes * rest,
            how="a model that is not trained is on every process as a whole",
        )
        for held in found.plan.models
        if not held.trained
    ]


def _gathered(found: Ledger) -> list[Line]:
    rest = 1 - 1 / found.plan.devices
    return [
        Line(
            role=held.role,
            part=GATHERED,
            phase=GENERATION,
            bytes=held.own_parameters * held.weight_bytes * rest,
            how="answers are drawn by whole weights, gathered from the other processes",
        )
        for held in found.plan.models
        if held.role == "policy" and held.trained and found.plan.generate_rows
    ]


def layouts_json(plan: Plan, room: Room | None) -> list[dict[str, Any]]:
    """A row for one process, then for each layout over each number of processes; bytes are of one
    process, and `fits` is None without a room."""
    alone = replace(plan, sharding="none", devices=1)
    rows = [(ONE, 1)] + [(name, n) for name in LAYOUTS if name != ONE for n in PROCESSES]
    found = []
    for name, processes in rows:
        peak = layout_ledger(alone, name, processes).peak
        found.append(
            {
                "layout": name,
                "processes": processes,
                "peak_bytes": round(peak),
                "fits": None if room is None else peak <= room.bytes,
            }
        )
    return found
