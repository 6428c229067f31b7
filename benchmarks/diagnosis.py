"""Faults planted in real PPO runs: whether they are found, how soon, and which link is named first.

A small world (`diagnosis_world`): the real `sft`, `reward` and `ppo` recipes on a language of
seventy words, two shapes of model, a reward model that learned from votes, and a hidden gold score.
Every fault of `diagnosis_world/faults.py` is planted in the configuration, data, weights or code of
a run; healthy runs stand beside them. A run is kept as one small JSON file of what it emitted, and
the diagnosis sees nothing else. Beside it: the thresholds of the two articles, read literally, and
rldoctor and rlprobe in an environment of their own (`make bench B=diagnosis` makes it).

About six seconds of CPU a run, 46 minutes the whole final set. Runs lie in VAR_DIR/diagnosis and
are taken from there when there are any; making them can be stopped at any time. Seeds to tune on
and seeds to report are apart (`diagnosis_world/seeds.py`). What came out: docs/diagnosis.md.

The sets rows-tuning and rows-final are of SFT, reward and DPO runs, with the faults of
`diagnosis_world/row_faults.py`.

Run: python -m benchmarks.diagnosis [report] --set tuning|final|rows-tuning|rows-final
     python -m benchmarks.diagnosis run --set … [--kinds …] [--faults …] [--seeds …] [--shapes …]
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.diagnosis_world.articles import articles
from benchmarks.diagnosis_world.judging import (
    Judge,
    Outcome,
    Said,
    by_fault,
    concord,
    confusion,
    delays,
    guarded,
    judge_all,
    percent,
    summary,
)
from benchmarks.diagnosis_world.records import Record, read_all
from benchmarks.report import print_report, print_table, versions
from measures.estimate import Interval

ROOT = Path(__file__).parents[1]
RIVALS_PYTHON = ROOT / ".venv-rivals" / "bin" / "python"
RIVALS = ("rldoctor", "rlprobe")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis")
    parser.add_argument("what", choices=("run", "report"), nargs="?", default="report")
    sets = ("tuning", "final", "rows-tuning", "rows-final")
    parser.add_argument("--set", choices=sets, default="final", dest="which")
    parser.add_argument("--kinds", nargs="*", default=[])
    parser.add_argument("--faults", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="*", type=int, default=[])
    parser.add_argument("--shapes", nargs="*", default=[])
    chosen = parser.parse_args()
    folder = Path(os.environ.get("VAR_DIR", ROOT / "var")) / "diagnosis"
    if chosen.what == "report":
        if chosen.which.startswith("rows-"):
            return rows_report(chosen.which, folder / chosen.which, chosen.kinds)
        return report(chosen.which, folder / chosen.which)
    import workers.recipes  # noqa: F401  (quiet, offline libraries)
    from benchmarks.diagnosis_world import runs

    only = {
        "kinds": chosen.kinds,
        "faults": chosen.faults,
        "seeds": chosen.seeds,
        "shapes": chosen.shapes,
    }
    runs.run_all(chosen.which, folder, **only)
    return None


def report(which: str, folder: Path) -> None:
    records = list(read_all(folder))
    if not records:
        raise SystemExit(f"There are no runs yet: python -m benchmarks.diagnosis run --set {which}")
    judged = {
        "Concord": judge_all(records, concord),
        "articles, literally": judge_all(records, articles),
        **{name: judge_all(records, judge) for name, judge in rivals(folder).items()},
    }
    ours = judged["Concord"]
    print_table(f"Faults of the {which} set, by Concord's diagnosis", by_fault(ours))
    print_table("Broken link and the one named first", confusion(ours))
    healthy = [record for record in records if not record.link]
    print_table("Findings in healthy runs", _false_alarms(ours))
    alerted = judge_all(healthy, guarded)
    print_table("Alerts in healthy runs, guardrails included", _by_rule(alerted))
    rows = [
        {"figure": figure} | {name: percent(summary(own)[figure]) for name, own in judged.items()}
        for figure in summary(ours)
    ]
    cpu = sum(record.cpu_s for record in records)
    print_report(
        "Faults planted in PPO runs, beside the articles' thresholds and two other tools",
        rows,
        {
            "set": which,
            "runs": len(records),
            "figures": {name: _plain(summary(own)) for name, own in judged.items()},
            "median_updates_until_found": {name: delays(own) for name, own in judged.items()},
            "cpu_minutes": round(cpu / 60, 1),
            "versions": versions("torch", "transformers"),
        },
    )


def rows_report(which: str, folder: Path, kinds: Sequence[str]) -> None:
    """Of SFT, reward and DPO runs; the articles and the other tools know none of their faults."""
    records = [one for one in read_all(folder) if not kinds or one.kind in kinds]
    if not records:
        raise SystemExit(f"There are no runs yet: python -m benchmarks.diagnosis run --set {which}")
    judged = {
        kind: judge_all([one for one in records if one.kind == kind], concord)
        for kind in dict.fromkeys(one.kind for one in records)
    }
    for kind, ours in judged.items():
        print_table(f"Faults of {kind} runs, {which} set", by_fault(ours))
        print_table(f"{kind}: broken link and the one named first", confusion(ours))
        print_table(f"{kind}: findings in healthy runs", _false_alarms(ours))
    names = list(summary(next(iter(judged.values()))))
    rows = [
        {"figure": name} | {kind: percent(summary(own)[name]) for kind, own in judged.items()}
        for name in names
    ]
    print_report(
        "Faults planted in SFT, reward and DPO runs",
        rows,
        {
            "set": which,
            "runs": len(records),
            "figures": {kind: _plain(summary(own)) for kind, own in judged.items()},
            "median_steps_until_found": {kind: delays(own) for kind, own in judged.items()},
            "cpu_minutes": round(sum(record.cpu_s for record in records) / 60, 1),
            "versions": versions("torch", "transformers", "trl"),
        },
    )


def rivals(folder: Path) -> dict[str, Judge]:
    """What rldoctor and rlprobe say of every run; nothing where their environment is missing."""
    if not RIVALS_PYTHON.exists():
        print("rldoctor and rlprobe are not installed: make bench B=diagnosis")
        return {}
    paths = "\n".join(str(path.resolve()) for path in sorted(folder.glob("*.json")))
    done = subprocess.run(
        [str(RIVALS_PYTHON), "-m", "benchmarks.diagnosis_sides.rivals"],
        cwd=ROOT,
        input=paths,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"rldoctor and rlprobe: {done.stderr[-2000:]}")
    told = json.loads(done.stdout)

    def judge_by(name: str) -> Judge:
        def judge(record: Record) -> Said:
            said = told[record.name][name]
            return Said(said["step"], tuple(said["links"]), tuple(said["rules"]))

        return judge

    return {name: judge_by(name) for name in RIVALS}


def _false_alarms(outcomes: list[Outcome]) -> list[dict[str, object]]:
    return [
        {"run": one.record.name, "step": one.said.step, "rules": ", ".join(one.said.rules)}
        for one in outcomes
        if not one.record.link and one.found
    ]


def _by_rule(outcomes: list[Outcome]) -> list[dict[str, object]]:
    counts = Counter(rule for one in outcomes for rule in one.said.rules)
    return [{"rule": rule, "runs": n, "of": len(outcomes)} for rule, n in counts.most_common()]


def _plain(figures: dict[str, Interval]) -> dict[str, dict[str, object]]:
    return {
        name: {
            "share": None if found.value is None else round(found.value, 4),
            "low": None if found.low is None else round(found.low, 4),
            "high": None if found.high is None else round(found.high, 4),
            "n": found.n,
        }
        for name, found in figures.items()
    }


if __name__ == "__main__":
    main()
