"""What a PPO run keeps: checkpoints, the newest answers, the best evaluation."""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from workers import ranks
from workers.artifacts import state_in, state_of
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.layouts.gathered import is_split
from workers.models.loading import laid_like, whole
from workers.ppo.distributed import Zero, gathered_weights
from workers.ppo.model import ActorCritic
from workers.ppo.setup import Models
from workers.rl.losses import RunningMoments
from workers.samples import write_lines

# The training state: safetensors and JSON, nothing pickled.
#
# training_state.safetensors   optimizer moments
# training_state.json          counters, controller, scales

TENSORS = "training_state.safetensors"
SCALARS = "training_state.json"
TABLES = ("qmap", "absmax")  # of moments in 8 bits: what a byte stands for, and scales of blocks


def save_training_state(
    folder: Path,
    moments: Iterable[tuple[torch.nn.Parameter, Mapping[str, Any]]],
    names: Mapping[torch.nn.Parameter, str],
    scalars: Mapping[str, Any],
) -> None:
    """Write `moments`, of an optimizer by parameter, under their names, and `scalars` as JSON.

    The first rank of a job writes; every rank must call, for moments may be split over them. What
    is written is whole, so that any number of ranks can go on from it.
    """
    tensors = {}
    for parameter, state in moments:
        for key, value in state.items():
            of_all = whole(torch.as_tensor(value))
            if ranks.is_first():
                name = f"{names[parameter]}.{key}"
                tensors[name] = of_all.detach().cpu().contiguous().clone()
    if not ranks.is_first():
        return
    place = state_in(folder)
    save_file(tensors, place / TENSORS)
    (place / SCALARS).write_text(json.dumps(dict(scalars), indent=1))


def load_training_state(
    folder: Path,
    optimizer: torch.optim.Optimizer,
    names: Mapping[torch.nn.Parameter, str],
) -> dict[str, Any]:
    """Put the optimizer back as it was and return the scalars.

    Raises `RecipeError` (damaged_checkpoint) when the files are missing or of another model.
    """
    try:
        tensors = load_file(state_of(folder) / TENSORS)
        scalars = json.loads((state_of(folder) / SCALARS).read_text())
    except OSError as error:
        raise RecipeError(
            "damaged_checkpoint", Fault.DATA, f"the checkpoint holds no training state: {error}"
        ) from error
    by_name = {name: parameter for parameter, name in names.items()}
    for full_name, value in tensors.items():
        name, key = full_name.rsplit(".", 1)
        parameter = by_name.get(name)
        table = key.startswith(TABLES)
        if parameter is None or (value.dim() and not table and value.shape != parameter.shape):
            raise RecipeError(
                "damaged_checkpoint",
                Fault.DATA,
                f"the training state of '{name}' does not fit this model",
            )
        if table:
            held: Any = value.to(parameter.device)
        elif value.dim():
            held = laid_like(parameter, value)
        else:
            # The step counter stays on the CPU, as the optimizer keeps it.
            held = value if isinstance(optimizer, torch.optim.AdamW) else int(value)
        optimizer.state[parameter][key] = held
    return scalars


# Everything a PPO run must remember to go on as if it had never stopped.


@dataclass
class TrainingState:
    """Counters, scales, the controller's coefficient, and what rules saw and changed.

    Random numbers need no place here: every draw has a seed derived from run seed and step.
    """

    kl_coef: float
    step: int = 0  # steps done
    policy_version: int = 0  # optimizer steps done
    position: int = 0  # prompts used
    tokens: int | None = None  # trained on; None where the run's first steps were not counted
    best: float | None = None  # best held-out score so far
    best_step: int | None = None
    not_better: int = 0  # evaluations since then
    moments: RunningMoments = field(default_factory=RunningMoments)
    baseline: dict[str, Any] | None = None  # the reference's answers before the first step
    guards: dict[str, Any] = field(default_factory=dict)
    watch: dict[str, Any] = field(default_factory=dict)  # what its counters look back over
    histograms: dict[str, Any] = field(default_factory=dict)  # their bins
    sampler: list[float] = field(default_factory=list)  # z of the last rollouts
    adjusted: dict[str, float] = field(default_factory=dict)  # factors and terms, by setting


def save(
    folder: Path,
    actor_critic: ActorCritic,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer | Zero,
    state: TrainingState,
    *,
    fresh_model: Callable[[], ActorCritic] | None = None,
) -> None:
    """A model folder that any program can load, with the training state beside it.

    The first rank of a job writes; every rank must call. Weights that are split over the ranks are
    brought together in the model that `fresh_model` makes; others need none.
    """
    whole = (
        gathered_weights(actor_critic, keep=ranks.is_first()) if is_split(actor_critic) else None
    )
    if ranks.is_first():
        model = actor_critic
        if whole is not None and fresh_model is not None:
            with torch.random.fork_rng():
                model = fresh_model()
            model.load_state_dict(whole)
        model.save(tokenizer, folder)
    moments: Any = optimizer.moments() if isinstance(optimizer, Zero) else optimizer.state.items()
    save_training_state(folder, moments, actor_critic.trained_names(), asdict(state))


def restore(
    folder: Path, actor_critic: ActorCritic, optimizer: torch.optim.Optimizer
) -> TrainingState:
    """The state of the checkpoint; the optimizer is put back too. Models are loaded before."""
    scalars = load_training_state(folder, optimizer, actor_critic.trained_names())
    moments = RunningMoments(**scalars.pop("moments"))
    scalars.pop("diagnosis", None)  # checkpoints of 0.2 kept two memories; `guards` is the one
    return TrainingState(**scalars, moments=moments)


ROLLOUTS_FILE = "rollouts.jsonl"
PAUSE_S = 20.0  # between two publications of a run that continues
# How long one that is no longer the newest stays: a check may wait for its worker that long.
KEPT_S = 900.0


class Kept:
    """The newest answers of a run, with their scores, versions and seeds: `most` of them."""

    def __init__(self, most: int) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=most)
        self._added = 0
        self._told_of = 0  # answers added when they were last published
        self._published: list[tuple[float, str]] = []  # when, where

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._records.extend(dict(record) for record in records)
        self._added += len(records)

    def __len__(self) -> int:
        return len(self._records)

    def write(self, folder: Path) -> None:
        if self._records:
            write_lines(folder / ROLLOUTS_FILE, list(self._records))

    def load(self, folder: Path) -> None:
        """Those of a checkpoint; a resumed run continues behind them."""
        path = state_of(folder) / ROLLOUTS_FILE
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                self._records.extend(json.loads(line) for line in lines)

    def publish(self, context: RunContext, *, pause_s: float = 0.0) -> None:
        """As the artifact rollouts.jsonl, whose newest one counts; nothing where no answer was
        added since, or where the last was published less than `pause_s` ago. Each has a place of
        its own, so that what was named by its hash stays."""
        now = context.clock()
        if not ranks.is_first():
            return
        if not self._records or self._told_of == self._added:
            return
        if self._published and now - self._published[-1][0] < pause_s:
            return
        self.write(context.workdir)
        uri = context.save_artifact(
            context.workdir / ROLLOUTS_FILE,
            place=f"rollouts-{self._added}",
            media_type="application/x-ndjson",
        )
        self._told_of = self._added
        self._published.append((now, uri))
        while now - self._published[0][0] > KEPT_S:
            context.forget_artifact(self._published.pop(0)[1])


def save_checkpoint(
    context: RunContext,
    models: Models,
    optimizer: torch.optim.Optimizer | Zero,
    state: TrainingState,
    kept: Kept,
    tags: list[str],
    metrics: Mapping[str, float],
) -> None:
    """Everything to go on from, stored under the state's step; the local copy is removed. The
    newest answers are published beside it: people can look into a run that still continues. Every
    rank must call; the first one writes."""
    folder = context.workdir / f"checkpoint-{state.step}"
    save(
        folder,
        models.actor_critic,
        models.tokenizer,
        optimizer,
        state,
        fresh_model=models.fresh_model,
    )
    if not ranks.is_first():
        return
    kept.write(state_in(folder))
    context.save_checkpoint(folder, step=state.step, tags=tags, metrics=metrics)
    shutil.rmtree(folder)
    kept.publish(context, pause_s=PAUSE_S)


def note_evaluation(state: TrainingState, headline: float, *, may_be_best: bool = True) -> bool:
    """Whether this evaluation is the best so far; counts those since that were not."""
    is_best = may_be_best and (state.best is None or headline > state.best)
    if is_best:
        state.best, state.best_step, state.not_better = headline, state.step, 0
    else:
        state.not_better += 1
    return is_best
