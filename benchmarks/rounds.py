"""Rounds of simulated people whose wish is known: whether policies improve, what stops bad ones.

A real site, its services and recipes on tiny models (`rounds_world`): the policy answers, people
with tastes, lapses and a pull to the left vote through the labeling service, a pipeline freezes,
trains, assesses and evaluates round after round, and starts by its trigger. A quarter of the votes
go against the hidden utility. Only the benchmark asks that: of each round's policy, on questions
that no model learned from, beside the policy that the first round began with.

Three arms a seed. people: the rounds; the first is passed by hand, and the pipeline is made of it.
selected: the first round's pairs chosen half D-optimally instead of at random, with as many votes.
length: people to whom a word more is worth more than most facts. The benchmark fails (exit status
1) where no rule and no line of a gate stops what comes of these.

What is shown is that of Dubois et al. 2023, "AlpacaFarm", in small. What came out: docs/rounds.md.
Some minutes of CPU a seed; each is stored in VAR_DIR/rounds, and taken from there when the
benchmark is run again.

Run: python -m benchmarks.rounds [--seeds 5 | --seed 1 2 …] [--rounds 3]
"""

import os

# One core: set before numpy and torch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.report import print_report, print_table, versions
from benchmarks.rounds_world.figures import Result, RoundFigures, read, write
from benchmarks.site import site
from measures.estimate import Interval
from measures.intervals import t_interval

ROOT = Path(__file__).parents[1]
# World, sizes and settings were chosen on the first; nothing was changed after others were run.
TUNING_SEED = 1
SEEDS = range(11, 111)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many, 1 to 100")
    parser.add_argument("--seed", type=int, nargs="*", help="these, instead")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    seeds = given.seed or list(SEEDS[: given.seeds])
    results = results_of(seeds, given.rounds)
    unstopped = [one.seed for one in results if not one.length.stopped_by]
    report(results, unstopped)
    if unstopped:
        sys.exit(1)


def results_of(seeds: Sequence[int], rounds: int) -> list[Result]:
    """In order; those that were not stored are run, on one site."""
    folder = Path(os.environ.get("VAR_DIR", ROOT / "var")) / "rounds"
    paths = {seed: folder / f"seed-{seed}.json" for seed in seeds}
    known = {seed: read(path) for seed, path in paths.items()}
    missing = [s for s, found in known.items() if found is None or len(found.rounds) != rounds]
    if missing:
        with site() as var:
            os.environ["MODEL_FOLDERS"] = str(var)
            for seed in missing:
                known[seed] = seed_run(seed, rounds, var)
                write(known[seed], paths[seed])
    return [found for found in known.values() if found is not None]


def seed_run(seed: int, rounds: int, var: Path) -> Result:
    from benchmarks.rounds_world.arms import length_arm, people_arm, selected_arm

    began = time.monotonic()
    start, figures = people_arm(seed, rounds, var)
    return Result(
        seed,
        figures,
        selected_arm(seed, var, start),
        length_arm(seed, var, start),
        round(time.monotonic() - began, 1),
    )


def report(results: Sequence[Result], unstopped: Sequence[int]) -> None:
    print_table(
        "Seeds: gold win rate of each round over the start", [_seed_row(r) for r in results]
    )
    rounds = list(zip(*(one.rounds for one in results), strict=True))
    chosen = [one.rounds[0] for one in results], [one.selected for one in results]
    print_table("First round's pairs chosen at random and half D-optimally", _choice_rows(*chosen))
    print_table("People who love length: one round", [_length_row(r) for r in results])
    gold = [_over([one.gold for one in figures]) for figures in rounds]
    rise = _over([_told(r.rounds[-1].gold) - _told(r.rounds[0].gold) for r in results])
    print(f"\n{said(gold, rise)}")
    if unstopped:
        print(f"Nothing stopped the people who love length of the seeds {unstopped}.")
    print_report(
        f"Rounds of simulated people, {len(results)} seeds",
        [_round_row(n, figures) for n, figures in enumerate(rounds, start=1)],
        {
            "seeds": [one.seed for one in results],
            "tuned_on": TUNING_SEED,
            "gold_win_rate": [_json(one) for one in gold],
            "rise_from_first_to_last_round": _json(rise),
            "flips": round(fmean(f.flips for figures in rounds for f in figures), 4),
            "flips_first_round": round(fmean(f.flips for f in rounds[0]), 4),
            "selected_minus_random": {
                name: _json(_differences(*chosen, name))
                for name in ("reward_accuracy", "reward_log_loss")
            },
            "votes_first_round": [figures.votes for figures in chosen[0]],
            "votes_selected": [figures.votes for figures in chosen[1]],
            "length_stopped_by": dict(_counted(one.length for one in results)),
            "people_stopped_by": dict(_counted(f for figures in rounds for f in figures)),
            "people_warned": dict(
                Counter(
                    rule
                    for figures in rounds
                    for one in figures
                    for rule in one.objections["warned"]
                )
            ),
            "length_unstopped_seeds": list(unstopped),
            "seconds": [one.seconds for one in results],
            "versions": versions("torch", "transformers", "trl", "django"),
        },
    )


def said(gold: Sequence[Interval], rise: Interval) -> str:
    """What the rounds came to, in words: nothing is called a rise whose interval holds 0."""
    last = gold[-1]
    if last.low is None or rise.low is None or rise.high is None:
        return "One seed says nothing about the next: no interval, so no claim."
    better = "better than" if last.low > 0.5 else "not shown to be better than"
    if rise.low > 0:
        course = "the gold win rate rose from the first round to the last"
    elif rise.high < 0:
        course = "the gold win rate FELL from the first round to the last"
    else:
        course = "the gold win rate is NOT shown to rise from the first round to the last"
    return f"After the last round the policy is {better} the start; {course}: {_points(rise)}."


def _seed_row(one: Result) -> dict[str, object]:
    gold = {f"round {n}": figures.gold for n, figures in enumerate(one.rounds, start=1)}
    flips = [f"{100 * figures.flips:.1f}" for figures in one.rounds]
    return {"seed": one.seed, **gold, "flips (%)": " ".join(flips), "seconds": one.seconds}


def _round_row(number: int, figures: Sequence[RoundFigures]) -> dict[str, object]:
    return {
        "round": number,
        "votes": round(fmean(one.votes for one in figures)),
        "flips (%)": 100 * fmean(one.flips for one in figures),
        "gold win rate (95 %)": _shares([one.gold for one in figures]),
        "gain, points": _over([one.gain for one in figures]).value,
        "judge's win rate": _shares([one.judge for one in figures]),
        "length ratio": _over([one.length_ratio for one in figures]).value,
        "KL, nats": _over([one.kl for one in figures]).value,
        "reward right (%)": 100 * fmean(one.reward_accuracy for one in figures),
        "stopped": sum(bool(one.stopped_by) for one in figures),
    }


def _choice_rows(
    random: Sequence[RoundFigures], selected: Sequence[RoundFigures]
) -> list[dict[str, object]]:
    rows = [
        {
            "pairs": name,
            "votes": round(fmean(one.votes for one in figures)),
            "flips (%)": 100 * fmean(one.flips for one in figures),
            "reward right (%)": 100 * fmean(one.reward_accuracy for one in figures),
            "log loss, nats": fmean(one.reward_log_loss for one in figures),
        }
        for name, figures in (("at random", random), ("half D-optimal", selected))
    ]
    right = _differences(random, selected, "reward_accuracy")
    loss = _differences(random, selected, "reward_log_loss")
    told = {"reward right (%)": _points(right), "log loss, nats": _figures(loss)}
    return [*rows, {"pairs": "difference (95 %)", "votes": "", "flips (%)": "", **told}]


def _length_row(one: Result) -> dict[str, object]:
    found = one.length
    return {
        "seed": one.seed,
        "flips (%)": 100 * found.flips,
        "gold win rate": "—" if found.gold is None else found.gold,
        "judge's": "—" if found.judge is None else found.judge,
        "length ratio": "—" if found.length_ratio is None else found.length_ratio,
        "stopped by": "; ".join(found.stopped_by) or "NOTHING",
        "warned": ", ".join(found.objections.get("warned", [])),
    }


def _differences(
    random: Sequence[RoundFigures], selected: Sequence[RoundFigures], name: str
) -> Interval:
    """Selected less random, paired by seed."""
    return _over(
        [getattr(s, name) - getattr(r, name) for r, s in zip(random, selected, strict=True)]
    )


def _counted(figures: Iterable[RoundFigures]) -> Counter[str]:
    return Counter(reason for one in figures for reason in one.stopped_by)


def _told(value: float | None) -> float:
    return float("nan") if value is None else value


def _over(values: Sequence[float | None]) -> Interval:
    """Mean and t interval over the seeds that have the figure."""
    return t_interval([value for value in values if value is not None])


def _shares(values: Sequence[float | None]) -> str:
    found = _over(values)
    if found.low is None or found.high is None or found.value is None:
        return "—" if found.value is None else f"{100 * found.value:.1f} %"
    low, high = max(found.low, 0.0), min(found.high, 1.0)  # a t interval knows no bounds
    return f"{100 * found.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _points(found: Interval) -> str:
    if found.value is None or found.low is None or found.high is None:
        return "no interval"
    low, high = 100 * found.low, 100 * found.high
    return f"{100 * found.value:+.1f} points ({low:+.1f} to {high:+.1f})"


def _figures(found: Interval) -> str:
    if found.value is None or found.low is None or found.high is None:
        return "no interval"
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _json(found: Interval) -> dict[str, float | None]:
    return {
        name: None if bound is None else round(bound, 4)
        for name, bound in (("mean", found.value), ("low", found.low), ("high", found.high))
    }


if __name__ == "__main__":
    main()
