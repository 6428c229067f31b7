"""One step of PPO in CPU seconds and memory, against TRL 1.12's PPOTrainer at the same work.

The same random 10 M-parameter Llama, reference, critic and tiny reward model; the same prompts in
the same order, the same seeds, step size, epochs, minibatches and prices; answers of up to 64
tokens that end by chance (benchmarks/ppo_sides/world.py). TRL runs in its own environment, which
`make bench B=ppo_step` makes. Each run is a process of its own on one core that counts its own CPU
time: generation, scoring, every forward pass and the update; building models and the first step
are left out. Memory is the peak over what the process holds once the models are loaded.

The step size is so small that answers stay as long as they began, on both sides: with the same
seeds both draw nearly the same tokens, and the table shows how many.

Also shown: that both sides give the policy the same gradient, from TRL's own rollout and
advantages, the whole batch as one minibatch.

With `phases` in the place of a world: where a step of ours spends its time, phase by phase, beside
plain matrix products of the same shapes in the same process (benchmarks/ppo_sides/phases.py).

Run: make bench B=ppo_step, or
python -m benchmarks.ppo_step [steps] [variable | fixed | all | phases]
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
from benchmarks.ppo_sides.world import World, build
from benchmarks.report import print_report, versions
from workers.rollouts.local import derive_seed

ROOT = Path(__file__).parents[1]
TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
STEPS, BATCH, MINIBATCH = 3, 16, 8
FULL = {"lora_rank": 0, "max_tokens_per_batch": 1024}
TRL = "TRL 1.12 PPOTrainer"
SEPARATE = "ours, critic of its own"
SHARED = "ours, shared trunk"
ADAPTERS = "ours, shared trunk, LoRA"
OURS = {
    SEPARATE: FULL | {"critic": "separate"},
    SHARED: FULL | {"critic": "shared"},
    ADAPTERS: FULL | {"critic": "shared", "lora_rank": 16},
}
RUNS = {  # world -> (side, epochs), in the order they run
    "variable": [(side, epochs) for epochs in (4, 1) for side in (TRL, SEPARATE, SHARED, ADAPTERS)],
    "fixed": [(side, 4) for side in (TRL, SEPARATE, SHARED)],
}


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    wanted = sys.argv[2] if len(sys.argv) > 2 else "all"
    if not TRL_PYTHON.exists():
        sys.exit("TRL's environment is missing: run this as `make bench B=ppo_step`.")
    if wanted == "phases":
        phases()
        return
    rows, sizes, agreement = [], {}, {}
    with tempfile.TemporaryDirectory() as name:
        for world in ("variable", "fixed") if wanted == "all" else (wanted,):
            folder = Path(name) / world
            prompts, sizes = build(folder, World(variable=world == "variable"))
            if not agreement:
                agreement = compare_gradients(folder, prompts)
                print(json.dumps({"gradient": agreement}), flush=True)
            for side, epochs in RUNS[world]:
                rows.append(row(folder, prompts, world, side, steps=steps, epochs=epochs))
                print(json.dumps(rows[-1]), flush=True)
    report(rows, sizes, agreement, steps)


def plan(prompts: list[list[int]], *, steps: int, epochs: int) -> dict[str, Any]:
    """What both sides read; seeds are those of Concord's own run."""
    return {
        "prompts": prompts[: BATCH * steps],
        "steps": steps,
        "batch_size": BATCH,
        "minibatch_size": MINIBATCH,
        "epochs": epochs,
        "max_new_tokens": 64,
        "learning_rate": 1e-7,
        "kl_coef": 0.05,
        "clip": 0.2,
        "value_clip": 0.2,
        "value_coef": 0.1,
        "lam": 0.95,
        "seed": 0,
        "seeds": [derive_seed(0, "rollout", step + 1) for step in range(steps)],
        "gradient_to": None,
    }


def phases() -> None:
    """One step of ours by phases, with each critic."""
    rows, total = [], {}
    with tempfile.TemporaryDirectory() as name:
        prompts, _ = build(Path(name), World(variable=True))
        for side in (SEPARATE, SHARED):
            what = plan(prompts, steps=1, epochs=4)
            found = run(Path(name), side, what, module="benchmarks.ppo_sides.phases")["phases"]
            for one in found:
                one["GFLOP/s"] = one["GFLOP"] / one["CPU s"]
                alone = one["products alone s"]
                one["GFLOP/s of products alone"] = one["GFLOP"] / alone if alone else 0.0
                rows.append({"side": side} | one)
            seconds, alone = (sum(r[k] for r in found) for k in ("CPU s", "products alone s"))
            total[side] = {"CPU s": round(seconds, 2), "over products": round(seconds / alone, 3)}
    print_report(
        "A step of PPO by phases, 16 answers, 4 epochs",
        rows,
        {"totals": total, "load": os.getloadavg(), "versions": versions("torch", "transformers")},
    )


def run(
    folder: Path, side: str, what: dict[str, Any], *, module: str = "benchmarks.ppo_sides.ours"
) -> dict[str, Any]:
    """One process; what it measured of itself."""
    result = folder / "result.json"
    what |= {"ours": OURS.get(side, FULL)}
    (folder / "plan.json").write_text(json.dumps(what))
    if side == TRL:
        command = [str(TRL_PYTHON), str(ROOT / "benchmarks" / "ppo_sides" / "trl_side.py")]
    else:
        command = [sys.executable, "-m", module]
    done = subprocess.run(
        [*command, str(folder), str(result)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{side}: {done.stderr[-3000:]}")
    return json.loads(result.read_text())


def row(
    folder: Path, prompts: list[list[int]], world: str, side: str, *, steps: int, epochs: int
) -> dict[str, Any]:
    found = run(folder, side, plan(prompts, steps=steps, epochs=epochs))
    measured = range(1, steps) if steps > 1 else range(1)  # the first step warms up
    cpu = [found["cpu_s"][i] for i in measured]
    tokens = [found["tokens"][i] for i in measured]
    responses = sum(one["response"] for one in tokens)
    return {
        "lengths": world,
        "epochs": epochs,
        "side": side,
        "CPU s/step": sum(cpu) / len(cpu),
        "CPU ms/response token": 1e3 * sum(cpu) / responses,
        "prompt tokens/step": sum(one["prompt"] for one in tokens) / len(cpu),
        "response tokens/step": responses / len(cpu),
        "peak MiB over models": found["above_models_mib"],
        "peak MiB": found["peak_mib"],
    }


def compare_gradients(folder: Path, prompts: list[list[int]]) -> dict[str, float]:
    """TRL's first gradient, from a batch that is one minibatch, against ours from its rollout."""
    kept = folder / "gradient.pt"
    what = plan(prompts, steps=1, epochs=1)
    run(folder, TRL, what | {"minibatch_size": BATCH, "gradient_to": str(kept)})
    from benchmarks.ppo_sides.gradient import agreement

    return agreement(folder / "policy", kept)


def report(
    rows: list[dict[str, Any]], sizes: dict[str, int], agreement: dict[str, float], steps: int
) -> None:
    theirs = {(r["lengths"], r["epochs"]): r for r in rows if r["side"] == TRL}
    ratios = {}
    for one in rows:
        other = theirs[one["lengths"], one["epochs"]]
        one["of TRL's CPU"] = one["CPU s/step"] / other["CPU s/step"]
        one["of TRL's memory"] = one["peak MiB over models"] / other["peak MiB over models"]
        if one is not other:
            name = f"{one['lengths']}, {one['epochs']} epochs, {one['side']}"
            ratios[name] = {
                "cpu": round(one["of TRL's CPU"], 3),
                "cpu_per_response_token": round(
                    one["CPU ms/response token"] / other["CPU ms/response token"], 3
                ),
                "memory_over_models": round(one["of TRL's memory"], 3),
            }
    print_report(
        f"A step of PPO, {BATCH} answers, {steps - 1 or 1} steps after a first",
        rows,
        {
            "alternative": TRL,
            "ratios": ratios,
            "gradient": agreement,
            "parameters": sizes,
            "versions": versions("torch", "transformers", "peft"),
        },
    )


if __name__ == "__main__":
    main()
