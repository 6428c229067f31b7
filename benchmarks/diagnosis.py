"""Faults planted in real PPO runs: whether they are found, how soon, and which link is named first.

A small world (`diagnosis_world`): the real `sft`, `reward` and `ppo` recipes on a language of
seventy words, with a hidden gold score. Every fault of `diagnosis_world/faults.py` is planted in
configuration, data, weights or code of a run; healthy runs stand beside them. The diagnosis sees
only what a run emits.

Run: python -m benchmarks.diagnosis run|report --set tuning|final [--faults …] [--seeds …]
     python -m benchmarks.diagnosis build --set final    (the worlds, before their runs)
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis")
    parser.add_argument("what", choices=("build", "run", "report"), nargs="?", default="report")
    parser.add_argument("--set", choices=("tuning", "final"), default="final", dest="which")
    parser.add_argument("--faults", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[])
    chosen = parser.parse_args()
    folder = Path(os.environ.get("VAR_DIR", ROOT / "var")) / "diagnosis"
    if chosen.what == "report":
        raise SystemExit("not yet")
    import workers.recipes  # noqa: F401  (quiet, offline libraries)
    from benchmarks.diagnosis_world import runs

    if chosen.what == "build":
        runs.build_all(chosen.which, folder)
    else:
        runs.run_all(chosen.which, folder, chosen.faults, chosen.seeds)


if __name__ == "__main__":
    main()
