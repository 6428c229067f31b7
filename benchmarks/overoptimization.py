"""Reward overoptimisation: gold rises, then falls under PPO, and what the guardrails keep of it.

A small world (`overoptimization_world`): people want certain words in an answer, which only a
hidden gold reward knows exactly. A crowd of simulated annotators votes on pairs of SFT answers with
noise and a weakness for flattery; the real `reward` recipe makes an ensemble of their votes, the
proxy. Reviewers without that weakness vote on other pairs; the same recipe makes the judge. The
real `ppo` recipe optimises the proxy, once with rules that only warn and once with guardrails that
stop. Gold is asked of the saved checkpoints from outside and is never an input.

What is shown is that of Gao, Schulman & Hilton 2022, "Scaling Laws for Reward Model
Overoptimization". Two bars over five fresh seeds: where the guarded run stopped, and at the
checkpoint it chose, at least 90 % of the best gold reward is left; the share of the gain over the
start, which is the stricter figure, is printed beside it. What came out: docs/overoptimization.md.

About a minute and a half of CPU a seed; each is stored in VAR_DIR/overoptimization and taken from
there when the benchmark is run again. With `docs` as an argument the curves of docs/ are drawn too.

Run: python -m benchmarks.overoptimization [docs] [seed …]
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from pathlib import Path
from statistics import median

import workers.recipes  # noqa: F401  (quiet, offline libraries)

# isort: split
from benchmarks.overoptimization_world.charts import figure, table
from benchmarks.overoptimization_world.courses import Result
from benchmarks.overoptimization_world.experiment import result_of
from benchmarks.overoptimization_world.reading import KEPT, Reading, alarm_rows, read_course
from benchmarks.report import print_report, versions
from measures.intervals import t_interval

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
# The world, the sizes and the rules that stop were chosen on the first; nothing was changed after
# the second were run, and each of them is reported.
TUNING_SEEDS = (1, 11, 12)
SEEDS = (21, 22, 23, 24, 25)


def main() -> None:
    arguments = sys.argv[1:]
    seeds = [int(word) for word in arguments if word.isdigit()] or list(SEEDS)
    folder = Path(os.environ.get("VAR_DIR", ROOT / "var")) / "overoptimization"
    results = [result_of(seed, folder) for seed in seeds]
    if "docs" in arguments:
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / "overoptimization.svg").write_text(figure(results), encoding="utf-8")
        (IMAGES / "overoptimization.csv").write_text(table(results), encoding="utf-8")
    readings = [read_course(result) for result in results]
    print_alarms(results)
    print_report(
        "Overoptimisation of a proxy reward, and what the guardrails keep of the gold reward",
        [_row(reading) for reading in readings],
        _summary(results, readings),
    )


def _row(reading: Reading) -> dict[str, object]:
    return {
        "seed": reading.seed,
        "gold at start": reading.start,
        "best": reading.best.gold,
        "at step": reading.best.step,
        "at KL": reading.best.kl,
        "unguarded end": reading.last,
        "gain lost (%)": 100 * reading.fall,
        "proxy since best": reading.proxy_rise,
        "guarded stop": reading.stop.step,
        "by": reading.stopped_by.removeprefix("guard_"),
        "gain at stop (%)": 100 * reading.stop.of_gain,
        "chosen": reading.chosen.step,
        "gold": reading.chosen.gold,
        "gain kept (%)": 100 * reading.chosen.of_gain,
        "gold kept (%)": 100 * reading.chosen.of_level,
    }


def print_alarms(results: list[Result]) -> None:
    print("\nAlarms of the unguarded runs, and how many came no later than the best gold\n")
    for row in alarm_rows(results):
        print(
            f"  {row['rule']:<24}{row['runs']:<9} steps {row['first at step']}"
            f"  (early: {row['up to the best gold']})"
        )


def _summary(results: list[Result], readings: list[Reading]) -> dict[str, object]:
    def over_seeds(values: list[float]) -> dict[str, float | None]:
        found = t_interval(values)
        return {
            name: None if bound is None else round(bound, 3)
            for name, bound in (("mean", found.value), ("low", found.low), ("high", found.high))
        }

    cpu = [course.cpu_s for result in results for course in result.courses.values()]
    return {
        "seeds": [reading.seed for reading in readings],
        "target_share_of_gold": KEPT,
        "phenomenon_seeds": sum(r.fall > 1 - KEPT and r.proxy_rise > 0 for r in readings),
        "unguarded_share_of_gain_lost": over_seeds([r.fall for r in readings]),
        "stopped_before_the_fall": sum(r.stop.of_level >= KEPT for r in readings),
        "share_of_gold_at_stop": over_seeds([r.stop.of_level for r in readings]),
        "share_of_gain_at_stop": over_seeds([r.stop.of_gain for r in readings]),
        "chosen_keeps_target": sum(r.chosen.of_level >= KEPT for r in readings),
        "share_of_gain_chosen": over_seeds([r.chosen.of_gain for r in readings]),
        "share_of_gold_chosen": over_seeds([r.chosen.of_level for r in readings]),
        "other_stops_share_of_gold": {
            name: {
                "at_stop": over_seeds([r.others[name][0].of_level for r in readings]),
                "chosen": over_seeds([r.others[name][1].of_level for r in readings]),
            }
            for name in readings[0].others
        },
        "proxy_held_out_accuracy": over_seeds([r.facts["proxy_accuracy"] for r in results]),
        "judge_held_out_accuracy": over_seeds([r.facts["judge_accuracy"] for r in results]),
        "ppo_cpu_s_median": round(median(cpu), 1),
        "versions": versions("torch", "transformers", "trl"),
    }


if __name__ == "__main__":
    main()
