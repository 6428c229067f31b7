"""Do the intervals of evaluations hold what they say? Coverage and false calls in simulation.

Votes of people whose taste differs (standard deviation in logits) on prompts that differ, with a
known truth; every row beside what Wilson's interval and a plain bootstrap of the same votes say,
which treat votes as independent. "Called" is a fair pair of systems called different at any of the
looks, one every ten prompts from twenty on. Each share with its 95 % Monte Carlo interval.

Run: python -m benchmarks.evaluation [simulations of each row]
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.evaluation_world.votes import first, several_simulated, simulated
from benchmarks.report import print_report, print_table, versions
from measures.head_to_head import Plan, Stopping, Verdict, result_of, votes_needed
from measures.intervals import dyadic_interval, mean_interval, paired_difference, t_interval, wilson
from measures.model_ranking import ModelVotes, bradley_terry
from measures.several_systems import BASELINE, several_result

SIMULATIONS = 800
ASKED = 0.93  # coverage at least, of a 95 % interval
MUCH = 0.97  # above it a row has to say why
Bounds = tuple[float | None, float | None]

# prompts × votes on each, people, standard deviations of prompts and people.
ONE_LOOK = (
    (400, 1, 20, 0.0, 0.0),
    (80, 5, 20, 1.0, 0.0),
    (80, 5, 20, 1.0, 0.5),
    (80, 5, 8, 1.0, 0.7),
    (400, 1, 8, 1.0, 0.7),
    (400, 1, 40, 1.0, 0.7),
)
MANY_LOOKS = (
    (300, 3, 8, 1.0, 0.7),
    (300, 3, 20, 1.0, 0.5),
    (600, 1, 20, 1.0, 0.5),
    (600, 1, 8, 1.0, 0.7),
    (300, 3, 60, 1.0, 0.5),
)
# systems, prompts with a vote each, people; standard deviations of both are 0.5.
SEVERAL = ((3, 240, 12), (3, 400, 40), (5, 400, 20))
WHY_MORE = {
    "held at every look": "it has to hold at every look, and this is one",
    "two ways": "few votes hang together here, and the larger of three variances is taken",
}


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else SIMULATIONS
    started = time.perf_counter()
    summary: dict[str, Any] = {"simulations": n}
    print_table("Coverage of a 95 % interval, 1 look", one_look(n, summary))
    print_table("Fair pairs called different, a look every ten prompts", many_looks(n, summary))
    print_table("Systems that do differ", differing(max(n // 4, 20), summary))
    print_table("Several equal systems", several_systems(max(n // 4, 20), summary))
    print_table("Other intervals", others(max(n // 2, 20), summary))
    rows = [
        {
            "what": name,
            "least coverage": f"{100 * least:.1f} %",
            "asked": f"{100 * ASKED:.0f} %",
            "why more": WHY_MORE.get(name, "") if most > MUCH else "",
        }
        for name, (least, most) in ends(summary).items()
    ]
    summary |= {"seconds": round(time.perf_counter() - started, 1)} | versions("numpy", "scipy")
    print_report("Evaluation: intervals in simulation", rows, summary)


def one_look(n: int, summary: dict[str, Any]) -> list[dict[str, object]]:
    rows = []
    for case in ONE_LOOK:
        prompts, each, people, of_prompts, of_people = case
        rng = np.random.default_rng([11, *(int(10 * x) for x in case)])
        plans = {
            "two ways": Plan(prompts=prompts, votes_each=each, stopping=Stopping.AT_THE_END),
            "held at every look": Plan(prompts=prompts, votes_each=each),
        }
        covered: Counter[str] = Counter()
        for _ in range(n):
            votes = simulated(
                rng,
                prompts=prompts,
                each=each,
                people=people,
                of_prompts=of_prompts,
                of_people=of_people,
            )
            found: dict[str, Bounds] = {
                "Wilson": _ends(wilson(float(votes.score.sum()), len(votes))),
                "plain bootstrap": _ends(mean_interval(votes.score)),
                "bootstrap by prompt": _ends(mean_interval(votes.score, clusters=votes.prompt)),
            }
            for name, plan in plans.items():
                estimate = result_of(votes, plan, ended=True).estimate
                found[name] = (estimate.low, estimate.high) if estimate else (None, None)
            for name, (low, high) in found.items():
                covered[name] += low is not None and high is not None and low <= 0.5 <= high
        rows.append(_case(case) | {name: _share(covered[name], n) for name in found})
        for name in found:
            summary[f"coverage_{_key(name)}_{_tag(case)}"] = round(covered[name] / n, 4)
    return rows


def many_looks(n: int, summary: dict[str, Any]) -> list[dict[str, object]]:
    rows = []
    for case in MANY_LOOKS:
        prompts, each, people, of_prompts, of_people = case
        rng = np.random.default_rng([12, *(int(10 * x) for x in case)])
        plan = Plan(prompts=prompts, votes_each=each)
        called: Counter[str] = Counter()
        for _ in range(n):
            votes = simulated(
                rng,
                prompts=prompts,
                each=each,
                people=people,
                of_prompts=of_prompts,
                of_people=of_people,
            )
            here = set()
            for seen in range(20, prompts + 1, 10):
                so_far = first(votes, seen * each)
                if result_of(so_far, plan).verdict in (Verdict.BETTER, Verdict.WORSE):
                    here.add("two ways, sequence")
                if _outside(wilson(float(so_far.score.sum()), len(so_far))):
                    here.add("Wilson")
                alone = so_far.score.reshape(-1, each).mean(axis=1)  # votes on a prompt as one
                error = float(alone.std(ddof=1)) / math.sqrt(len(alone))
                if abs(float(alone.mean()) - 0.5) > 1.96 * error:
                    here.add("by prompt")
            called.update(here)
        names = ("Wilson", "by prompt", "two ways, sequence")
        rows.append(_case(case) | {name: _share(called[name], n) for name in names})
        for name in names:
            summary[f"false_calls_{_key(name)}_{_tag(case)}"] = round(called[name] / n, 4)
        lower = _bounds(called["two ways, sequence"], n)[0]
        assert lower <= 0.05, f"{case}: {called['two ways, sequence']} of {n} called"
    return rows


def differing(n: int, summary: dict[str, Any]) -> list[dict[str, object]]:
    """How often a difference is called within 2,000 prompts of 60 people, and after how many votes;
    beside the votes of a design that may be looked at once (80 % power)."""
    rows = []
    for win in (0.45, 0.55, 0.60, 0.65):
        rng = np.random.default_rng([13, int(100 * win)])
        plan = Plan(prompts=2000)
        needed, called = [], 0
        for _ in range(n):
            votes = simulated(
                rng, prompts=2000, each=1, people=60, of_prompts=0.5, of_people=0.2, win=win
            )
            for seen in range(20, 2001, 20):
                verdict = result_of(first(votes, seen), plan).verdict
                if verdict in (Verdict.BETTER, Verdict.WORSE):
                    called += (verdict == Verdict.BETTER) == (win > 0.5)
                    needed.append(seen)
                    break
        once = votes_needed(difference=abs(win - 0.5), ties=0.0)
        rows.append(
            {
                "the first wins": f"{100 * win:.0f} %",
                "called": _share(called, n),
                "votes until then, mean": round(float(np.mean(needed))) if needed else None,
                "votes of one look": once,
            }
        )
        summary[f"called_{100 * win:.0f}"] = round(called / n, 4)
        summary[f"votes_{100 * win:.0f}_of_one_look"] = once
        summary[f"votes_{100 * win:.0f}"] = round(float(np.mean(needed))) if needed else None
    return rows


def others(n: int, summary: dict[str, Any]) -> list[dict[str, object]]:
    """Intervals of other pages, on data of the kind that they are meant for."""
    rng = np.random.default_rng(14)
    cases: dict[str, Callable[[], tuple[float, Bounds, Bounds]]] = {
        "share, independent rows (Wilson)": lambda: _independent(rng),
        "mean of clusters": lambda: _clustered(rng),
        "paired difference of clusters": lambda: _paired(rng),
        "pairs of arguments that recur": lambda: _recurring(rng),
        "mean over 5 seeds": lambda: _seeds(rng),
    }
    rows = []
    for name, draw in cases.items():
        ours = plain = 0
        for _ in range(n):
            truth, mine, other = draw()
            ours += _within(truth, mine)
            plain += _within(truth, other)
        rows.append(
            {"interval": name, "ours": _share(ours, n), "plain bootstrap": _share(plain, n), "n": n}
        )
        summary[f"coverage_{_key(name)}"] = round(ours / n, 4)
        summary[f"coverage_plain_{_key(name)}"] = round(plain / n, 4)
    few = max(n // 10, 20)
    held = sum(_within(0.5, _strengths(seed)) for seed in range(few))
    rows.append(
        {
            "interval": "strengths of four models",
            "ours": _share(held, few),
            "plain bootstrap": "—",
            "n": few,
        }
    )
    summary["coverage_strengths"] = round(held / few, 4)
    return rows


def _independent(rng: np.random.Generator) -> tuple[float, Bounds, Bounds]:
    rows = (rng.random(120) < 0.85).astype(float)
    return 0.85, _ends(wilson(float(rows.sum()), 120)), _ends(mean_interval(rows))


def _clustered(rng: np.random.Generator) -> tuple[float, Bounds, Bounds]:
    groups = np.repeat(np.arange(60), rng.integers(1, 8, 60))
    rows = rng.normal(0, 1, 60)[groups] + rng.normal(0, 1, len(groups))
    ours = mean_interval(rows, clusters=groups)
    return 0.0, _ends(ours), _ends(mean_interval(rows))


def _paired(rng: np.random.Generator) -> tuple[float, Bounds, Bounds]:
    groups = np.repeat(np.arange(60), 5)
    hard, gain = rng.normal(0, 1, 60)[groups], rng.normal(0.1, 0.4, 60)[groups]
    one, other = hard + gain + rng.normal(0, 1, 300), hard + rng.normal(0, 1, 300)
    ours = paired_difference(one, other, clusters=groups)
    return 0.1, _ends(ours), _ends(mean_interval(one - other))


def _recurring(rng: np.random.Generator) -> tuple[float, Bounds, Bounds]:
    units = 50
    pairs = np.array([rng.permutation(units)[:2] for _ in range(500)])
    effect = rng.normal(0, 0.7, units)
    rows = effect[pairs[:, 0]] + effect[pairs[:, 1]] + rng.normal(0, 1, 500)
    ours = dyadic_interval(rows, pairs[:, 0], pairs[:, 1])
    return 0.0, _ends(ours), _ends(mean_interval(rows))


def _seeds(rng: np.random.Generator) -> tuple[float, Bounds, Bounds]:
    rows = rng.normal(0, 1, 5)
    values = rng.choice(rows, (400, 5)).mean(axis=1)
    low, high = np.quantile(values, (0.025, 0.975))
    return 0.0, _ends(t_interval(rows)), (float(low), float(high))


def _strengths(seed: int) -> Bounds:
    """What is said of the strongest of four models, whose strength is ½."""
    votes = several_simulated(
        [15, seed], (0.5, 0.2, -0.2, -0.5), prompts=300, people=15, taste=0.2, of_prompts=0.2
    )
    found = {s.model: s for s in bradley_terry(votes, replicates=100).strengths}
    one = found.get(0)
    if one is None or one.low is None or one.high is None:
        return None, None
    return one.low, one.high


def several_systems(n: int, summary: dict[str, Any]) -> list[dict[str, object]]:
    """Equal systems of a head-to-head of several. Coverage of what is said of the first beside the
    baseline, of one look and of all differences at once; and how often any difference is called at
    any of the looks, one every twenty prompts from sixty on. Wilson's interval and the bootstrap
    see the votes in which the two met, and at the looks those of any two."""
    rows = []
    for systems, prompts, people in SEVERAL:
        plans = {
            "one look, all differences": Plan(prompts=prompts, stopping=Stopping.AT_THE_END),
            "held at every look, all differences": Plan(prompts=prompts),
        }
        held: Counter[str] = Counter()
        called: Counter[str] = Counter()
        for seed in range(n):
            votes = several_simulated(
                [16, systems, people, seed], np.zeros(systems), prompts=prompts, people=people
            )
            met = _met(votes, 0, BASELINE)
            found = {"Wilson": _wilson(met), "plain bootstrap": _ends(mean_interval(met))}
            for name, plan in plans.items():
                said = several_result(votes, plan, ended=True).several
                one = next((s for s in said.standings if s.system == 0), None) if said else None
                found["one look"] = (one.once_low, one.once_high) if one else (None, None)
                sure = said is not None and all(
                    _within(0.5, (d.low, d.high)) for d in said.differences
                )
                held[name] += sure
            for name, bounds in found.items():
                held[name] += _within(0.5, bounds)
            here = set()
            for seen in range(60, prompts + 1, 20):
                so_far = votes.only(np.arange(len(votes)) < seen)
                said = several_result(so_far, plans["held at every look, all differences"]).several
                if said is not None and any(d.told for d in said.differences):
                    here.add("Holm, sequence")
                pairs = combinations(range(systems), 2)
                if any(not _within(0.5, _wilson(_met(so_far, i, j))) for i, j in pairs):
                    here.add("Wilson")
            called.update(here)
        tag = f"{systems}_systems_{people}_people"
        names = ("one look", *plans, "Wilson", "plain bootstrap")
        rows.append(
            {"systems": systems, "prompts": prompts, "people": people}
            | {name: _share(held[name], n) for name in names}
            | {f"{name}: called": _share(called[name], n) for name in ("Holm, sequence", "Wilson")}
        )
        summary |= {f"coverage_{_key(name)}_{tag}": round(held[name] / n, 4) for name in names}
        for name in ("Holm, sequence", "Wilson"):
            summary[f"false_calls_{_key(name)}_{tag}"] = round(called[name] / n, 4)
        assert _bounds(held["one look"], n)[1] >= ASKED, f"{tag}: {held['one look']} of {n} covered"
        assert _bounds(called["Holm, sequence"], n)[0] <= 0.05, f"{tag}: too many called"
    return rows


def _met(votes: ModelVotes, one: int, other: int) -> np.ndarray:
    """Scores of `one` where it met `other`."""
    forth = (votes.first == one) & (votes.second == other)
    back = (votes.first == other) & (votes.second == one)
    return np.concatenate([votes.score[forth], 1 - votes.score[back]])


def _wilson(score: np.ndarray) -> Bounds:
    return _ends(wilson(float(score.sum()), len(score)))


def ends(summary: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """{interval of ours: least and most coverage}, and it is asserted to be what is asked."""
    found = {}
    for name in ("two ways", "held at every look"):
        shares = [v for k, v in summary.items() if k.startswith(f"coverage_{_key(name)}_")]
        found[name] = (min(shares), max(shares))
    n = int(summary["simulations"])
    for name, (least, _) in found.items():
        assert _bounds(round(least * n), n)[1] >= ASKED, f"{name}: {least}"
    return found


def _case(case: Sequence[float]) -> dict[str, object]:
    prompts, each, people, of_prompts, of_people = case
    return {
        "prompts × votes": f"{prompts} × {each}",
        "people": people,
        "sd prompt / person": f"{of_prompts:g} / {of_people:g}",
    }


def _tag(case: Sequence[float]) -> str:
    return f"{case[0]}x{case[1]}_{case[2]}_people_{case[3]:g}_{case[4]:g}".replace(".", "p")


def _key(name: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _ends(interval: Any) -> Bounds:
    return interval.low, interval.high


def _within(truth: float, bounds: Bounds) -> bool:
    low, high = bounds
    return low is not None and high is not None and low <= truth <= high


def _outside(interval: Any) -> bool:
    return not _within(0.5, _ends(interval))


def _bounds(k: int, n: int) -> tuple[float, float]:
    found = wilson(k, n)
    return found.low or 0.0, 1.0 if found.high is None else found.high


def _share(k: int, n: int) -> str:
    low, high = _bounds(k, n)
    return f"{100 * k / n:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


if __name__ == "__main__":
    main()
