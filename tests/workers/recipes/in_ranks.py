"""Jobs in turn on every rank of one `torchrun`, so that its start is paid once.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m
        tests.workers.recipes.in_ranks
            ROOT FILE

FILE is a list of
{"spec": …, "after": step or null, "command": …, "resumes": run or null, "plant": …}.
A command is seen by the first rank alone, and a planted fault lies on the last. What the first rank
reports goes to events.jsonl in the job's folder, what it raises is the last event there.
"""

import importlib
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.workers.recipes.language import Notebook, Outcome, Workshop
from workers import ranks
from workers.context import RunContext
from workers.contract.events import Failed, Finished, RecipeError
from workers.contract.jobs import spec_from_json
from workers.ppo import distributed, trainer
from workers.ppo.model import ActorCritic
from workers.rollouts.drawing import Chunk, Drawn, LocalDrawer
from workers.train import preflight


@contextmanager
def planted(fault: str | None) -> Iterator[None]:
    """`apart`: the last rank begins with other weights. `draw`: it cannot draw in step 2. `small`:
    no fault, but no weight is small enough for ZeRO 3 to leave it whole, nor are few tokens one
    piece for the output layer, so that ranks have unequally many. `gradient`: a gradient of the
    last rank's overflows once in step 2, of a loss that is a number."""
    load, draw = trainer.load_models, LocalDrawer.draw
    config, piece = distributed.configuration, ActorCritic.logits_chunk
    backwards = {
        stepper: stepper.backward for stepper in (distributed.Zero, distributed.WholeSteps)
    }

    def other_weights(*arguments: Any) -> Any:
        models = load(*arguments)
        with torch.no_grad():
            models.actor_critic.value_head.weight.add_(1e-3)
        return models

    def no_draw(drawer: LocalDrawer, chunks: Sequence[Chunk], *, version: int) -> Iterator[Drawn]:
        calls.append(version)
        if len(calls) == 3:  # there are two rounds in a step
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        return draw(drawer, chunks, version=version)

    def nothing_stays(*arguments: Any, **options: Any) -> dict[str, Any]:
        found = config(*arguments, **options)
        found["zero_optimization"]["stage3_param_persistence_threshold"] = 0
        return found

    def overflowing(stepper: Any, share: torch.Tensor, *, last: bool) -> None:
        calls.append(0)
        # Six minibatches of one part each in step 1, then that of the first of step 2.
        backwards[type(stepper)](stepper, share * (math.inf if len(calls) == 7 else 1), last=last)

    calls: list[int] = []
    if fault == "small":
        distributed.configuration, ActorCritic.logits_chunk = nothing_stays, 8
    if ranks.rank() == ranks.world() - 1:
        trainer.load_models = other_weights if fault == "apart" else load
        LocalDrawer.draw = no_draw if fault == "draw" else draw
        for stepper, backward in backwards.items():
            stepper.backward = overflowing if fault == "gradient" else backward
    try:
        yield
    finally:
        trainer.load_models, LocalDrawer.draw = load, draw
        distributed.configuration, ActorCritic.logits_chunk = config, piece
        for stepper, backward in backwards.items():
            stepper.backward = backward


@contextmanager
def weighing(file: Path) -> Iterator[None]:
    """What DeepSpeed leaves on this rank at the end of a run: numbers in weights and moments."""
    close = distributed.Zero.close

    def weighed(own: distributed.Zero) -> None:
        moments = own.engine.optimizer.optimizer.state.values()
        held = {
            "weights": sum(p.numel() for p in own.engine.module.parameters()),
            "moments": sum(state["exp_avg"].numel() for state in moments if state),
        }
        file.write_text(json.dumps(held))
        close(own)

    distributed.Zero.close = weighed
    try:
        yield
    finally:
        distributed.Zero.close = close


def run(shop: Workshop, job: dict[str, Any], done: dict[str, Outcome]) -> Outcome:
    spec = spec_from_json(job["spec"])
    if job.get("resumes"):
        first = ranks.from_first(shop.resume(done[job["resumes"]]) if ranks.is_first() else None)
        spec = replace(spec, resume=first)
    notebook = Notebook(spec)
    after, command = job.get("after"), job.get("command", "stop")
    ticks = itertools.count(step=10)
    folder = shop.folder(spec)
    folder.mkdir(parents=True, exist_ok=True)
    context = RunContext(
        spec,
        shop.store,
        folder,
        notebook if ranks.is_first() else None,
        stop_signal=lambda: (
            command if ranks.is_first() and after is not None and notebook.step >= after else None
        ),
        clock=lambda: next(ticks),
        preflight=preflight,
    )
    recipe = importlib.import_module(f"workers.recipes.{spec.kind}")
    try:
        with planted(job.get("plant")), weighing(folder / f"held-{ranks.rank()}.json"):
            summary = recipe.run(context)
        context.emit(Finished(step=notebook.step, summary=summary))
    except RecipeError as error:
        context.emit(Failed(error.kind, error.fault, error.message))
    if ranks.is_first():
        lines = [json.dumps(envelope) + "\n" for envelope in notebook.envelopes]
        (folder / "events.jsonl").write_text("".join(lines))
        (folder / "log.txt").touch()
    return Outcome(notebook.envelopes)


def main(root: Path, jobs: list[dict[str, Any]]) -> None:
    warnings.filterwarnings("ignore")  # of libraries; the one process beside these is strict
    shop, done = Workshop(root), dict[str, Outcome]()
    for job in jobs:
        done[job["spec"]["run"]] = run(shop, job, done)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
