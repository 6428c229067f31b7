"""Concord's PPO on the models and prompts of a folder: the steps of a run as `workers.train` makes
them, with events, contracts and guardrails, but without evaluations and checkpoints.

Run: python -m benchmarks.ppo_sides.ours FOLDER RESULT.json, where FOLDER/plan.json says what to do.
"""

import json
import sys
from pathlib import Path
from typing import Any

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
from benchmarks.ppo_sides.meter import Meter
from workers.artifacts import Store
from workers.config import settings_for
from workers.context import RunContext
from workers.contract.events import Event, Metrics
from workers.contract.jobs import InputRef, JobSpec
from workers.ppo.setup import Prompts
from workers.recipes.ppo import PPOTrainer
from workers.rollouts.drawing import PromptOrder

SEED = 0


class Notebook:
    """Keeps the metrics that a run reports."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []

    def write(self, event: Event) -> None:
        if isinstance(event, Metrics):
            self.values.append({name: points[-1] for name, points in event.values.items()})


def main(folder: Path, result: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    notebook = Notebook()
    loop = build(folder, plan, notebook)
    meter, tokens = Meter(), []
    count_tokens(loop, tokens)
    meter.start()
    for _ in range(plan["steps"]):
        loop.step()
        meter.step()
    loop.context.flush()
    loop.scoring.close()
    result.write_text(json.dumps(meter.figures() | {"tokens": tokens, "logs": notebook.values}))


def configuration(plan: dict[str, Any]) -> dict[str, Any]:
    """The same as TRL's side, and `ours`: what this run does its own way."""
    return {
        "batch_size": plan["batch_size"],
        "minibatch_size": plan["minibatch_size"],
        "update_epochs": plan["epochs"],
        "max_new_tokens": plan["max_new_tokens"],
        "max_prompt_length": max(map(len, plan["prompts"])),
        "temperature": 1.0,
        "learning_rate": plan["learning_rate"],
        "value_learning_rate": plan["learning_rate"],
        "lr_schedule": "constant",
        "kl_coef": plan["kl_coef"],
        "clip": plan["clip"],
        "value_clip": plan["value_clip"],
        "value_coef": plan["value_coef"],
        "gae_lambda": plan["lam"],
        "steps": plan["steps"],
        "update_kl_target": 1e6,  # TRL never ends an update early
        "reward_check": "off",
    } | plan["ours"]


def build(folder: Path, plan: dict[str, Any], notebook: Notebook) -> PPOTrainer:
    """A loop whose next prompts are the plan's, in its order."""
    work = folder / "concord"
    prompts = work / "prompts"
    prompts.mkdir(parents=True, exist_ok=True)
    row = {"prompt": [{"role": "user", "content": "a"}], "messages": []}
    (prompts / "train.jsonl").write_text(json.dumps(row) + "\n")
    store = Store(str(work / "store"))
    inputs = tuple(
        InputRef(role, kind, role, f"inputs/{role}", store.put_tree(path, f"inputs/{role}")[0])
        for role, kind, path in (
            ("policy", "checkpoint", folder / "policy"),
            ("reward", "checkpoint", folder / "reward"),
            ("prompts", "snapshot", prompts),
        )
    )
    config = configuration(plan)
    spec = JobSpec(
        run="benchmark",
        attempt=1,
        kind="ppo",
        project="benchmark",
        seed=SEED,
        artifacts_url=str(work / "store"),
        config=config,
        inputs=inputs,
    )
    context = RunContext(spec, store, work, notebook)
    loop = PPOTrainer.build(context, settings_for("ppo", config))
    loop.prompts = in_order(plan["prompts"], loop.models.tokenizer)
    return loop


def in_order(ids: list[list[int]], tokenizer: Any) -> Prompts:
    """Prompts that the run's own shuffle puts into the order of `ids`."""
    places = PromptOrder(len(ids), seed=SEED).take(0, len(ids))
    rows: list[list[int]] = [[]] * len(ids)
    for place, row in zip(places, ids, strict=True):
        rows[place] = row
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    return Prompts([[{"role": "user", "content": text}] for text in texts], rows, left_out=0)


def count_tokens(loop: PPOTrainer, counts: list[dict[str, int]]) -> None:
    """Prompt and response tokens (end token included) of each step's rollout."""
    own = loop.check

    def check(rollout: Any) -> None:
        counts.append(
            {
                "prompt": int(rollout.responses.prompt_mask.sum()),
                "response": int(rollout.mask.sum()),
                "width": int(rollout.mask.shape[1]),
            }
        )
        own(rollout)

    loop.check = check


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
