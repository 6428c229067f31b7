"""Makes the runs of the suite, one after another, and stores what each emitted."""

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

from benchmarks.diagnosis_world.faults import FAULTS, HEALTHY, PPO, Fault
from benchmarks.diagnosis_world.language import Question
from benchmarks.diagnosis_world.models import SHAPES
from benchmarks.diagnosis_world.records import Record, stored, write
from benchmarks.diagnosis_world.row_faults import ROW_FAULTS, ROW_INPUTS, ROW_SETTINGS
from benchmarks.diagnosis_world.row_faults import STEPS as ROW_STEPS
from benchmarks.diagnosis_world.seeds import (
    FINAL_HEALTHY,
    FINAL_SEEDS,
    ROWS_FINAL_HEALTHY,
    ROWS_FINAL_SEEDS,
    ROWS_TUNING_HEALTHY,
    ROWS_TUNING_SEEDS,
    TUNING_HEALTHY,
    TUNING_SEEDS,
)
from benchmarks.diagnosis_world.world import World, open_world
from benchmarks.workshop import Outcome
from workers.context import RunContext
from workers.contract.events import Alert, ArtifactSaved, Evidence
from workers.data.batches import encode_pair
from workers.rewards import model
from workers.rollouts.local import derive_seed
from workers.rules.choices import guardrails_of

GOLD_WINDOW = 5  # steps at either end of a run whose answers make its hidden gold
INPUTS = {
    "ppo": {
        "sft": "sft",
        "prompts": "prompts",
        "reward": "fair",
        "canaries": "canaries",
        "reward_data": "fair-votes",
    },
    **ROW_INPUTS,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {"ppo": PPO, **ROW_SETTINGS}


@dataclass(frozen=True, slots=True)
class Job:
    fault: Fault
    shape: str
    seed: int

    @property
    def name(self) -> str:
        kind = self.fault.kind
        return Record(self.fault.name, "", False, 0, self.shape, self.seed, {}, kind=kind).name


def jobs(which: str) -> list[Job]:
    """In the order in which they are worth having: a set that is not finished is still balanced.
    `which`: tuning, final, rows-tuning or rows-final."""
    seeds, healthy = {
        "tuning": (TUNING_SEEDS, TUNING_HEALTHY),
        "final": (FINAL_SEEDS, FINAL_HEALTHY),
        "rows-tuning": (ROWS_TUNING_SEEDS, ROWS_TUNING_HEALTHY),
        "rows-final": (ROWS_FINAL_SEEDS, ROWS_FINAL_HEALTHY),
    }[which]
    on_rows = which.startswith("rows-")
    faults = ROW_FAULTS if on_rows else FAULTS.values()
    kinds = tuple(ROW_SETTINGS) if on_rows else ("ppo",)
    none = [Fault(HEALTHY, "", "nothing is wrong", kind=kind) for kind in kinds]
    by_contract = sorted(faults, key=lambda fault: not fault.contract)
    ordered: list[Job] = []
    rest = iter([Job(f, shape, seed) for seed in healthy for f in none for shape in SHAPES])
    per_seed = -(-len(healthy) * len(SHAPES) * len(kinds) // len(seeds))
    for seed in seeds:
        ordered += [Job(fault, shape, seed) for fault in by_contract for shape in SHAPES]
        ordered += itertools.islice(rest, per_seed)
    return [*ordered, *rest]


def run_all(which: str, root: Path, **only: Sequence[object]) -> None:
    """What is missing of a set; worlds lie in `root`/worlds, records in `root`/`which`.

    `only` these faults, seeds or shapes; all of them where none are named. Two shapes may be made
    at the same time."""
    for job in jobs(which):
        here = {
            "kinds": job.fault.kind,
            "faults": job.fault.name,
            "seeds": job.seed,
            "shapes": job.shape,
        }
        if any(chosen and here[name] not in chosen for name, chosen in only.items()):
            continue
        if stored(root / which, job.name) is None:
            record = run(open_world(root / "worlds", job.seed, job.shape), job)
            write(record, root / which)
            print(told(record), flush=True)


def run(world: World, job: Job) -> Record:
    fault, kind, name = job.fault, job.fault.kind, f"ppo-{job.name}"
    watched = {rule.name: "warn" for rule in guardrails_of(kind) if "warn" in rule.actions}
    config = {**SETTINGS[kind], "guards": watched, **fault.config}
    inputs = {role: world.need(held) for role, held in {**INPUTS[kind], **fault.inputs}.items()}
    world.keep()
    began, cpu = time.monotonic(), time.process_time()
    with brisk(), fault.plant(world) if fault.plant else nullcontext():
        outcome = world.shop.run(name, kind, config, seed=derive_seed(job.seed, kind, 0), **inputs)
    cpu_s, wall_s = time.process_time() - cpu, time.monotonic() - began
    record = Record(
        fault=fault.name,
        link=fault.link,
        contract=fault.contract,
        since=fault.since,
        shape=job.shape,
        seed=job.seed,
        config=config,
        curves={metric: sorted(points.items()) for metric, points in outcome.curves.items()},
        evidence=[asdict(event) for event in outcome.all(Evidence)],
        alerts=[asdict(event) for event in outcome.all(Alert)],
        hidden={"gold": gold(world, outcome), "accuracy": world.accuracy},
        cpu_s=cpu_s,
        wall_s=wall_s,
        kind=kind,
        steps=config.get("steps", ROW_STEPS),
    )
    if outcome.failure:
        record.failure = (failed_at(record, outcome.failure), outcome.failure, outcome.message)
    world.shop.clear(name)
    return record


@contextmanager
def brisk() -> Iterator[None]:
    """A quarter of the time of a run this small goes into what changes none of its figures: texts
    that are encoded again at each evaluation, and an estimate of its memory."""
    known: dict[tuple[str, str, int], Any] = {}

    def encode(tokenizer: Any, prompt: Any, response: str, *, max_length: int) -> Any:
        key = (prompt[-1]["content"], response, max_length)
        if key not in known:
            known[key] = encode_pair(tokenizer, prompt, response, max_length=max_length)
        return known[key]

    with patch.object(model, "encode_pair", encode), patch.object(RunContext, "check_memory"):
        yield


def failed_at(record: Record, kind: str) -> int:
    """The step in which a run ended. One that broke a contract was not reported any more."""
    measure = "objective/kl" if record.kind == "ppo" else "loss"
    told = max((step for step, _ in record.curves.get(measure, [])), default=0)
    return told + kind.startswith("contract_")


def gold(world: World, outcome: Outcome) -> dict[str, float]:
    """Hidden gold of the answers at the start and at the end; nothing of a run that kept none."""
    kept = [event for event in outcome.all(ArtifactSaved) if event.name == "rollouts.jsonl"]
    if not kept:
        return {}
    by_step: dict[int, list[float]] = defaultdict(list)
    for line in (world.shop.root / "store" / kept[-1].uri).read_text().splitlines():
        row = json.loads(line)
        by_step[row["step"]].append(world.gold(Question.read(row["prompt"]), row["response"]))
    steps = sorted(by_step)
    first, last = steps[: GOLD_WINDOW - 2], steps[-GOLD_WINDOW:]
    return {
        "start": fmean(value for step in first for value in by_step[step]),
        "end": fmean(value for step in last for value in by_step[step]),
        "best": max(fmean(by_step[step]) for step in steps),
    }


def told(record: Record) -> str:
    gain = record.gold_gain
    return (
        f"{record.name:<32} {record.last_step:>3} steps  {record.cpu_s:5.1f} s  "
        f"gold {'' if gain is None else f'{gain:+.2f}':<6} "
        f"{record.failure[1] if record.failure else ''}"
    )
