"""What one process holds under each layout, so that a run can be told which one fits. No torch.

`ledger` splits what a sharding could split. Here stands what our recipes split: frozen models
(reference, reward model, judge) stay whole on every process, answers are drawn by weights that were
gathered for it, and data parallel keeps the sum of the gradients beside the gradients. Rows of a
pass are not divided: a process computes as many at once as one alone would.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workers.contract.layouts import DATA, LAYOUTS, ONE, ZERO3
from workers.memory.entries import GENERATION, RESIDENT, UPDATE, Ledger, Line, Plan
from workers.memory.ledger import ledger
from workers.memory.room import Room

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
    if split and plan.generate_rows and (layout == ZERO3 or not plan.chunks_when_split):
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
