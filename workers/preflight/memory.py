"""Whether a run fits its device, before its models are loaded."""

from dataclasses import fields
from typing import Any

from workers import ranks
from workers.context import RunContext
from workers.contract.events import Fault
from workers.memory.entries import Ledger
from workers.memory.layouts import layout_ledger
from workers.memory.plan import plan_for
from workers.memory.report import fits, message, tight, to_json
from workers.memory.room import Room, room
from workers.preflight.findings import BLOCK, OK, UNKNOWN, WARN, Finding


def ledger_of(
    context: RunContext,
    kind: str,
    settings: Any,
    *,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
) -> Ledger | None:
    """The ledger of one process of a run, from its inputs' configurations; None where there are
    none to read."""
    plan = plan_for(context, kind, settings, longest_prompt=longest_prompt, longest_row=longest_row)
    return None if plan is None else layout_ledger(plan, context.spec.layout, ranks.world())


def memory_finding(found: Ledger | None, settings: Any, here: Room | None = None) -> Finding:
    """Blocks where the peak is over what the device has; close to it is a warning."""
    if found is None:
        return Finding(
            level=UNKNOWN,
            check="memory",
            message="The memory cannot be estimated: no input holds a model's configuration, or "
            "its architecture cannot be read without its weights.",
        )
    here = here or room()
    level = BLOCK if not fits(found, here) else WARN if tight(found, here) else OK
    return Finding(
        level=level,
        check="memory",
        message=message(found, here, fields=names_of(settings)),
        figures={
            "peak_bytes": round(found.peak),
            "room_bytes": round(here.bytes),
            "share": found.peak / here.bytes,
        },
        fault=Fault.CONFIGURATION,
    )


def memory_json(found: Ledger, settings: Any, here: Room | None = None) -> dict[str, Any]:
    return to_json(found, here or room(), fields=names_of(settings))


def names_of(settings: Any) -> list[str]:
    return [field.name for field in fields(settings)]
