"""The ledger in words and as JSON. No torch."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from workers.memory.fitting import GB, TIGHT, Measure, Room, Way, layouts_json, savings, way_to_fit
from workers.memory.ledger import LOOK, PHASES, RESIDENT, ROLES, Ledger

VERSION = 1
NEEDS = ("layout",)  # what every run can say of its machine, beside its recipe's settings
LARGEST = 4  # parts that a sentence names


def gigabytes(amount: float) -> str:
    """1.2 GB, 35 GB, 80 MB; decimal units."""
    if amount < 1e6:
        return "under 1 MB"
    if amount < 1e8:
        return f"{amount / 1e6:.0f} MB"
    return f"{amount / GB:.1f} GB" if amount < 1e10 else f"{amount / GB:,.0f} GB"


def fits(found: Ledger, room: Room) -> bool:
    return found.peak <= room.bytes


def tight(found: Ledger, room: Room) -> bool:
    """It fits, and an estimate that is a fifth too low would not."""
    return TIGHT * room.bytes < found.peak <= room.bytes


def message(found: Ledger, room: Room, *, fields: Iterable[str] = ()) -> str:
    """What the run takes at its largest and of what, against the room; where it does not fit, what
    would. `fields`: the settings that the recipe has, so that they can be named."""
    said = (
        f"At its largest, {PHASES[found.peak_phase]}, the run takes about "
        f"{gigabytes(found.peak)} of the {gigabytes(room.bytes)} of {room.name} "
        f"({_largest(found)})."
    )
    if fits(found, room):
        if tight(found, room):
            said += " That is close: the estimate is good to a fifth."
        return said
    return f"{said} {way_message(way_to_fit(found, room.bytes), set(fields))}"


def way_message(way: Way, fields: set[str]) -> str:
    if not way.fits:
        return (
            f"It does not fit, and no measure known here makes it fit: the least is "
            f"{gigabytes(way.peak)}. Choose a smaller model."
        )
    said = (
        f"It does not fit. It would take about {gigabytes(way.peak)} with "
        f"{_listed(_steps(way, fields))}."
    )
    foreign = [m.title for m in dict.fromkeys(way.measures) if fields and not _field(m, fields)]
    if foreign:
        said += (
            f" This recipe has no setting for {_listed(foreign)}: take a smaller model or a larger "
            "device in its place."
        )
    return said


def to_json(found: Ledger, room: Room | None, *, fields: Iterable[str] = ()) -> dict[str, Any]:
    """The shape is described in docs/memory.md."""
    own = set(fields)
    way = way_to_fit(found, room.bytes) if room and not fits(found, room) else None
    plan = found.plan
    return {
        "version": VERSION,
        "peak_bytes": round(found.peak),
        "peak_phase": found.peak_phase,
        "room": None
        if room is None
        else {"bytes": round(room.bytes), "device": room.device, "name": room.name},
        "fits": None if room is None else fits(found, room),
        "computed": {
            "precision": plan.precision,
            "optimizer": plan.optimizer,
            "gradient_checkpointing": plan.gradient_checkpointing,
            "sharding": plan.sharding,
            "devices": plan.devices,
            "update_rows": plan.update_rows,
            "update_length": plan.update_length,
        },
        "phases": [
            {"phase": phase, "title": title, "bytes": round(found.of_phase(phase))}
            for phase, title in PHASES.items()
            if phase == RESIDENT or found.of_phase(phase) or phase != LOOK
        ],
        "models": [
            {"role": role, "model": title, "bytes": round(found.of_role(role))}
            for role, title in ROLES.items()
            if found.of_role(role)
        ],
        "lines": [line.to_json() for line in found.lines],
        "measures": [
            {
                "name": saving.measure.name,
                "title": saving.measure.title,
                "field": _field(saving.measure, own),
                "peak_bytes": round(saving.peak),
                "saves_bytes": round(saving.saves),
                "fits": None if room is None else saving.peak <= room.bytes,
            }
            for saving in savings(found)
        ],
        "layouts": layouts_json(plan, room),
        "would_fit": None
        if way is None
        else {
            "fits": way.fits,
            "peak_bytes": round(way.peak),
            "measures": [measure.name for measure in way.measures],
            "message": way_message(way, own),
        },
    }


def _largest(found: Ledger) -> str:
    counted = {
        (line.role, line.part): 0.0
        for line in found.lines
        if line.phase in (RESIDENT, found.peak_phase)
    }
    for line in found.lines:
        if (line.role, line.part) in counted and line.phase in (RESIDENT, found.peak_phase):
            counted[line.role, line.part] += line.bytes
    ordered = sorted(counted.items(), key=lambda item: -item[1])[:LARGEST]
    return ", ".join(
        f"{part if role == 'run' else f'{ROLES[role]} {part}'} {gigabytes(amount)}"
        for (role, part), amount in ordered
    )


def _steps(way: Way, fields: set[str]) -> list[str]:
    """Each measure once, with its setting; the micro-batch with the rows it ends at."""
    names = [measure.name for measure in way.measures]
    told: list[str] = []
    for measure in dict.fromkeys(way.measures):
        title = measure.title
        if measure.name == "micro_batch":
            title = _rows(way)
        elif names.count(measure.name) > 1:
            title = f"sequences of at most {way.plan.update_length} tokens"
        field = _field(measure, fields)
        told.append(f"{title} ({field})" if field else title)
    return told


def _rows(way: Way) -> str:
    trained, drawn = way.plan.update_rows, way.plan.generate_rows
    learning = f"{trained} {'sequence' if trained == 1 else 'sequences'} learned from at once"
    return f"{learning} and {drawn} answered" if drawn > trained else learning


def _field(measure: Measure, fields: set[str]) -> str | None:
    return next((name for name in measure.fields if name in fields or name in NEEDS), None)


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words) or "nothing more"
    return ", ".join(words[:-1]) + " and " + words[-1]


# What to do when memory ran out, in the order of what it costs. No torch.

# First what changes nothing but speed, then what changes the data, then what needs more machines.
PASSES = ("max_tokens_per_batch", "microbatch_size")
CHUNKS = ("rollout_chunk", "logits_chunk", "reward_batch_size")
LENGTHS = ("max_new_tokens", "max_completion_length", "max_prompt_length", "max_length")


def out_of_memory_advice(kind: str, config: Mapping[str, Any]) -> str:
    """One to three sentences that name the recipe's own settings with their values; "" for a kind
    whose settings change nothing about memory."""
    # Imported here: the trainer must be able to fail without the recipes.
    from workers.config import PRESETS, SETTINGS

    cls = SETTINGS.get(kind)
    if cls is None:
        return ""
    values = {
        f.name: f.default if f.default is not MISSING else None for f in fields(cls) if f.init
    }
    values |= PRESETS.get(kind, {}).get(str(config.get("preset")), {})
    values |= {name: value for name, value in config.items() if name in values}
    smaller = [sentence for sentence in (_micro_batch(values), _length(values)) if sentence]
    if not smaller:
        return ""
    return " ".join(
        f"{order} {sentence}"
        for order, sentence in zip(
            ("First,", "Then,", "Last,"),
            [*smaller, _sharding(values)],
            strict=False,
        )
    )


def _micro_batch(values: Mapping[str, Any]) -> str:
    smaller = [*_passes(values)]
    smaller += [
        f"{name} {values[name]} → {max(1, int(values[name]) // 2)}"
        for name in CHUNKS
        if isinstance(values.get(name), int) and values[name] > 1
    ]
    more = []
    if values.get("gradient_checkpointing") in (False, "off", "auto"):
        more.append("switch gradient_checkpointing on (slower by a third)")
    if values.get("lora_rank") == 0:
        more.append("train adapters (lora_rank 16) in place of all weights")
    extra = " and ".join(more)
    said = f"compute less at once, which changes no result: {', '.join(smaller)}" if smaller else ""
    return "; ".join(part for part in (said, extra) if part) + "." if said or extra else ""


def _passes(values: Mapping[str, Any]) -> list[str]:
    """The one setting to lower that decides how much a pass with gradient computes."""
    for name in PASSES:
        if isinstance(values.get(name), int) and values[name] > 1:
            return [f"{name} {values[name]} → {values[name] // 2}"]
    if "microbatch_size" in values:
        rows = int(values.get("minibatch_size") or values.get("batch_size") or 2)
        return [f"microbatch_size unset → {max(1, rows // 2)}"]
    if "gradient_accumulation" in values:
        parts = int(values["gradient_accumulation"] or 1)
        return [f"gradient_accumulation {parts} → {2 * parts}"]
    return []


def _length(values: Mapping[str, Any]) -> str:
    named = [f"{name} ({values[name]})" for name in LENGTHS if isinstance(values.get(name), int)]
    return f"shorten the sequences: {', '.join(named)}." if named else ""


def _sharding(values: Mapping[str, Any]) -> str:
    return (
        "take a device with more memory, or split optimizer, gradients and weights over several "
        "(ZeRO, FSDP); docs/memory.md says what each saves."
    )
