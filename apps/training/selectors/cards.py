"""What a model card says: what a model was made of, under which licences, and how."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.core.cache import cache

from apps.common.registry import CardLine, card_lines
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.lineage import origins
from apps.snapshots.services.writing import frozen_card
from apps.training.models import Checkpoint, Run
from apps.training.selectors.reference import started_from
from workers.artifacts import ArtifactError
from workers.config import recipe_config
from workers.contract.jobs import is_hub_id

_DAY_S = 86_400
DEPTH = 12  # models in a row
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """`base` is what the weights began as, in words; `hub_base` its id on a hub, where adapters
    of this model can be put on that very model. `start` is the model before this one."""

    model: Checkpoint
    start: Checkpoint | None
    history: list[Checkpoint]  # the models before it, the nearest first
    base: str
    hub_base: str
    licence: str
    data: list[tuple[Snapshot, list[str]]]  # with the licences of their texts
    settings: dict[str, Any]
    metrics: dict[str, Any]
    lines: list[CardLine]  # what later apps know: how it was judged, which stages named it

    @property
    def title(self) -> str:
        return f"{self.model.run.name}, step {self.model.step:,}"


def model_card(model: Checkpoint) -> ModelCard:
    run, history = model.run, models_before(model)
    root = history[-1].run if history else run
    start = history[0] if history else None
    above = start.run if start else run
    return ModelCard(
        model=model,
        start=start,
        history=history,
        base=_base(root),
        hub_base=_on_hub(above) if start is None or _is_registered(above) else "",
        licence=str(root.summary.get("licence") or UNKNOWN),
        data=[(one, licences_of(one)) for one in origins(run).snapshots],
        settings=recipe_config(run.kind, run.config),
        metrics=model.metrics,
        lines=card_lines(model),
    )


def models_before(model: Checkpoint) -> list[Checkpoint]:
    """What it was trained from, and that in turn: the nearest first, the registered one last."""
    found: list[Checkpoint] = []
    while len(found) < DEPTH and (before := started_from(model.run)) is not None:
        model = before[1]
        found.append(model)
    return found


def licences_of(snapshot: Snapshot) -> list[str]:
    """Of its texts; none where its card cannot be read."""
    key = f"licences:{snapshot.sha256}"
    found: list[str] | None = cache.get(key)
    if found is None:
        try:
            found = list(frozen_card(snapshot).get("licences", []))
        except ArtifactError:
            return []
        cache.set(key, found, timeout=_DAY_S)
    return found


def _is_registered(run: Run) -> bool:
    return run.kind.startswith("register_")


def _named(run: Run) -> str:
    """The model that a run's configuration names; none of a copy, which names another project's."""
    if _is_registered(run) and started_from(run) is not None:
        return ""
    return str(run.config.get("model" if _is_registered(run) else "base_model") or "")


def _on_hub(run: Run) -> str:
    """Whose weights are those of a model on a hub, and of nothing more."""
    name = _named(run)
    return name if is_hub_id(name) and not run.config.get("adapter") else ""


def _base(root: Run) -> str:
    if root.kind == Run.Kind.SERVED:
        return f"{root.config.get('model')}, served at {root.summary.get('at', UNKNOWN)}"
    if not (name := _named(root)):
        return "none: built and trained here"
    shown = name if is_hub_id(name) else PurePosixPath(name).name  # no folder of a worker
    if adapter := root.config.get("adapter"):
        shown += f" with the adapter {PurePosixPath(adapter).name}"
    weights = root.summary.get("weights_sha256")
    return f"{shown} (weights {weights})" if weights else shown
