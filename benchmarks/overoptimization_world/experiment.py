"""One seed of the experiment: PPO without brakes and with them, and the gold reward of both.

Gold is asked from outside only: each checkpoint a run saves is loaded while it is there, answers
the evaluation questions, and the answers are judged. No run has gold among its inputs.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.overoptimization_world.courses import (
    VERSION,
    Course,
    Point,
    Result,
    read,
    write,
)
from benchmarks.overoptimization_world.world import PPO, World, answers, build
from workers.contract.events import Alert, CheckpointSaved
from workers.rollouts.local import derive_seed
from workers.rules.choices import guardrails_of

ANSWERS_PER_QUESTION = 6  # behind each gold figure

WATCHED = {rule.name: "warn" for rule in guardrails_of("ppo") if "warn" in rule.actions}
ARMS: Mapping[str, Mapping[str, Any]] = {
    # Every rule only warns: what happens when nobody listens, and when each rule would have spoken.
    "unguarded": {"guards": WATCHED},
    # What docs/overoptimization.md advises: the shipped rules, four of them stop rather than warn,
    # the distance at the six nats that the adaptive controller aims at, and three evaluations
    # without a better judge's score end the run.
    "guarded": {
        "patience": 3,
        "guards": {
            "reference_kl": {"threshold": 6.0, "action": "stop"},
            "length": "stop",
            "repetition": "stop",
            "disagreement": "stop",
        },
    },
}


def result_of(seed: int, folder: Path) -> Result:
    """From `folder` where it was stored before, else computed and stored there."""
    path = folder / f"seed-{seed}.json"
    if path.is_file():
        known = read(path)
        if known.version == VERSION:
            return known
    with tempfile.TemporaryDirectory() as root:
        result = run(Path(root), seed)
    folder.mkdir(parents=True, exist_ok=True)
    write(result, path)
    return read(path)


def run(root: Path, seed: int) -> Result:
    world = build(root, seed)
    result = Result(seed, world.facts)
    for arm, changes in ARMS.items():
        result.courses[arm] = course(world, arm, changes)
    return result


def course(world: World, arm: str, changes: Mapping[str, Any]) -> Course:
    """The PPO run `arm` in this world."""
    began = time.process_time()
    gold = {0: gold_figures(world, world.shop.folder_of("sft"))}

    def look(event: CheckpointSaved) -> None:
        gold[event.step] = gold_figures(world, world.shop.root / "store" / event.uri)

    outcome = world.shop.run(
        arm,
        "ppo",
        PPO | changes,
        seed=derive_seed(world.seed, "ppo"),  # the same for all arms
        on_checkpoint=look,
        sft="sft",
        prompts="prompts",
        reward="proxy",
        judge="judge",
    )
    curves = outcome.curves
    points = [
        Point(
            step,
            curves["eval/score"][step],
            curves["eval/held_out_score"][step],
            curves["eval/kl"][step],
            **gold[step],
        )
        for step in sorted(gold)
        if step in curves["eval/score"]  # a run that a rule stopped may save between evaluations
    ]
    chosen = [e.step for e in outcome.all(CheckpointSaved) if "best" in e.tags]
    return Course(
        points,
        [(alert.step, alert.rule) for alert in outcome.all(Alert)],
        ended_at=max(curves["objective/kl"]),
        ended_by=outcome.failure or outcome.summary.get("stopped_by", ""),
        gold_at_end=gold[max(gold)]["gold"],
        best=chosen[-1] if chosen else 0,
        cpu_s=time.process_time() - began,
    )


def gold_figures(world: World, folder: Path) -> dict[str, float]:
    """Mean gold reward, its parts, and words, over answers to the evaluation questions."""
    asked = world.evaluation * ANSWERS_PER_QUESTION
    given = answers(folder, asked, seed=derive_seed(world.seed, "gold"))
    parts = [world.gold.parts(question, text) for question, text in zip(asked, given, strict=True)]
    return {
        "gold": fmean(part.total for part in parts),
        "words": fmean(len(text.split()) for text in given),
    } | {
        name: fmean(getattr(part, name) for part in parts)
        for name in ("facts", "repeats", "length", "flattery")
    }
